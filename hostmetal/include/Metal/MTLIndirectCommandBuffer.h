// Indirect command buffers: dispatches that are encoded once, by the host, and run as often as asked.
#ifndef HOSTMETAL_MTLINDIRECTCOMMANDBUFFER_H_
#define HOSTMETAL_MTLINDIRECTCOMMANDBUFFER_H_

#import <Metal/MTLDefines.h>
#import <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLIndirectComputeCommand;

// A device makes no buffers for drawing.
typedef NS_OPTIONS(NSUInteger, MTLIndirectCommandType) {
  MTLIndirectCommandTypeDraw = 1 << 0,
  MTLIndirectCommandTypeDrawIndexed = 1 << 1,
  MTLIndirectCommandTypeDrawPatches = 1 << 2,
  MTLIndirectCommandTypeDrawIndexedPatches = 1 << 3,
  MTLIndirectCommandTypeConcurrentDispatch = 1 << 5,
  MTLIndirectCommandTypeConcurrentDispatchThreads = 1 << 6,
};

typedef struct {
  uint32_t location;
  uint32_t length;
} MTLIndirectCommandBufferExecutionRange;

MTL_EXPORT
@interface MTLIndirectCommandBufferDescriptor : NSObject <NSCopying> {
 @private
  MTLIndirectCommandType _commandTypes;
  BOOL _inheritPipelineState, _inheritBuffers;
  NSUInteger _maxVertexBufferBindCount, _maxFragmentBufferBindCount, _maxKernelBufferBindCount;
  NSUInteger _maxKernelThreadgroupMemoryBindCount;
}
@property(nonatomic) MTLIndirectCommandType commandTypes;
// From the encoder that executes the commands.
@property(nonatomic) BOOL inheritPipelineState;
@property(nonatomic) BOOL inheritBuffers;
// Taken, without effect: nothing is drawn.
@property(nonatomic) NSUInteger maxVertexBufferBindCount;
@property(nonatomic) NSUInteger maxFragmentBufferBindCount;
// At most 31, which is the default of both.
@property(nonatomic) NSUInteger maxKernelBufferBindCount;
@property(nonatomic) NSUInteger maxKernelThreadgroupMemoryBindCount;
@end

@protocol MTLIndirectCommandBuffer <MTLResource>
@property(readonly) NSUInteger size;
- (void)resetWithRange:(NSRange)range;
// nil, with a line on stderr, outside of the buffer.
- (nullable id<MTLIndirectComputeCommand>)indirectComputeCommandAtIndex:(NSUInteger)commandIndex;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLINDIRECTCOMMANDBUFFER_H_
