// Command queues: one thread each, command buffers in commit order.
#ifndef HOSTMETAL_MTLCOMMANDQUEUE_H_
#define HOSTMETAL_MTLCOMMANDQUEUE_H_

#import <Metal/MTLCommandBuffer.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLResidencySet;

MTL_EXPORT
@interface MTLCommandQueueDescriptor : NSObject <NSCopying> {
 @private
  NSUInteger _maxCommandBufferCount;
  id<MTLLogState> _logState;
}
// 64 by default.
@property(nonatomic) NSUInteger maxCommandBufferCount;
// The log state of its command buffers whose descriptors name none.
@property(nullable, readwrite, nonatomic, retain) id<MTLLogState> logState;
@end

@protocol MTLCommandQueue <NSObject>

@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
// These block while the queue has its maximum of command buffers that are not completed.
- (nullable id<MTLCommandBuffer>)commandBuffer;
- (nullable id<MTLCommandBuffer>)commandBufferWithDescriptor:
    (MTLCommandBufferDescriptor*)descriptor;
- (nullable id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
- (void)insertDebugCaptureBoundary;  // without effect, as captures

// The queue keeps a set until it is removed.
- (void)addResidencySet:(id<MTLResidencySet>)residencySet;
- (void)addResidencySets:(const id<MTLResidencySet> _Nonnull[_Nonnull])residencySets
                   count:(NSUInteger)count;
- (void)removeResidencySet:(id<MTLResidencySet>)residencySet;
- (void)removeResidencySets:(const id<MTLResidencySet> _Nonnull[_Nonnull])residencySets
                      count:(NSUInteger)count;

@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLCOMMANDQUEUE_H_
