// Command buffers: status, errors, handlers, encoders and events.
#ifndef HOSTMETAL_MTLCOMMANDBUFFER_H_
#define HOSTMETAL_MTLCOMMANDBUFFER_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLResidencySet;

@protocol MTLBlitCommandEncoder;
@protocol MTLCommandBuffer;
@protocol MTLCommandQueue;
@protocol MTLComputeCommandEncoder;
@protocol MTLDevice;
@protocol MTLEvent;
@protocol MTLLogState;
@class MTLBlitPassDescriptor;
@class MTLComputePassDescriptor;

typedef NS_ENUM(NSUInteger, MTLCommandBufferStatus) {
  MTLCommandBufferStatusNotEnqueued = 0,
  MTLCommandBufferStatusEnqueued = 1,
  MTLCommandBufferStatusCommitted = 2,
  MTLCommandBufferStatusScheduled = 3,
  MTLCommandBufferStatusCompleted = 4,
  MTLCommandBufferStatusError = 5,
};

MTL_EXTERN NSErrorDomain const MTLCommandBufferErrorDomain;

typedef NS_ENUM(NSUInteger, MTLCommandBufferError) {
  MTLCommandBufferErrorNone = 0,
  MTLCommandBufferErrorInternal = 1,
  MTLCommandBufferErrorTimeout = 2,
  MTLCommandBufferErrorPageFault = 3,
  MTLCommandBufferErrorBlacklisted = 4,
  MTLCommandBufferErrorAccessRevoked = 4,
  MTLCommandBufferErrorNotPermitted = 7,
  MTLCommandBufferErrorOutOfMemory = 8,
  MTLCommandBufferErrorInvalidResource = 9,
  MTLCommandBufferErrorMemoryless = 10,
  MTLCommandBufferErrorDeviceRemoved = 11,
  MTLCommandBufferErrorStackOverflow = 12,
};

// An NSArray of id<MTLCommandBufferEncoderInfo> in the order of encoding, when the option asks for
// it.
MTL_EXTERN NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey;

typedef NS_OPTIONS(NSUInteger, MTLCommandBufferErrorOption) {
  MTLCommandBufferErrorOptionNone = 0,
  MTLCommandBufferErrorOptionEncoderExecutionStatus = 1 << 0,
};

typedef NS_ENUM(NSInteger, MTLCommandEncoderErrorState) {
  MTLCommandEncoderErrorStateUnknown = 0,
  MTLCommandEncoderErrorStateCompleted = 1,
  MTLCommandEncoderErrorStateAffected = 2,
  MTLCommandEncoderErrorStatePending = 3,
  MTLCommandEncoderErrorStateFaulted = 4,
};

MTL_EXPORT
@interface MTLCommandBufferDescriptor : NSObject <NSCopying> {
 @private
  BOOL _retainedReferences;
  MTLCommandBufferErrorOption _errorOptions;
  id<MTLLogState> _logState;
}
@property(readwrite, nonatomic) BOOL retainedReferences;
@property(readwrite, nonatomic) MTLCommandBufferErrorOption errorOptions;
// Where its kernels' messages go, whatever the queue's descriptor says.
@property(nullable, readwrite, nonatomic, retain) id<MTLLogState> logState;
@end

@protocol MTLCommandBufferEncoderInfo <NSObject>
@property(readonly, nonatomic) NSString* label;
@property(readonly, nonatomic) NSArray<NSString*>* debugSignposts;
@property(readonly, nonatomic) MTLCommandEncoderErrorState errorState;
@end

typedef void (^MTLCommandBufferHandler)(id<MTLCommandBuffer>);

typedef NS_ENUM(NSUInteger, MTLDispatchType) {
  MTLDispatchTypeSerial,
  MTLDispatchTypeConcurrent,
};

@protocol MTLCommandBuffer <NSObject>

@property(readonly) id<MTLDevice> device;
@property(readonly) id<MTLCommandQueue> commandQueue;
@property(readonly) BOOL retainedReferences;
@property(readonly) MTLCommandBufferErrorOption errorOptions;
@property(nullable, copy, atomic) NSString* label;
@property(readonly) MTLCommandBufferStatus status;
@property(nullable, readonly) NSError* error;

// Seconds on the clock of CLOCK_MONOTONIC; zero before they are known.
@property(readonly) CFTimeInterval kernelStartTime;
@property(readonly) CFTimeInterval kernelEndTime;
@property(readonly) CFTimeInterval GPUStartTime;
@property(readonly) CFTimeInterval GPUEndTime;

- (void)enqueue;
- (void)commit;
- (void)addScheduledHandler:(MTLCommandBufferHandler)block;
- (void)waitUntilScheduled;
- (void)addCompletedHandler:(MTLCommandBufferHandler)block;
// Returns after the completed handlers have run.
- (void)waitUntilCompleted;

- (nullable id<MTLBlitCommandEncoder>)blitCommandEncoder;
- (nullable id<MTLBlitCommandEncoder>)blitCommandEncoderWithDescriptor:
    (MTLBlitPassDescriptor*)blitPassDescriptor;
- (nullable id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (nullable id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:
    (MTLDispatchType)dispatchType;
- (nullable id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:
    (MTLComputePassDescriptor*)computePassDescriptor;

// Only between encoders.
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;

// The sets' members stay alive until the command buffer has completed.
- (void)useResidencySet:(id<MTLResidencySet>)residencySet;
- (void)useResidencySets:(const id<MTLResidencySet> _Nonnull[_Nonnull])residencySets
                   count:(NSUInteger)count;

- (void)pushDebugGroup:(NSString*)string;
- (void)popDebugGroup;

@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLCOMMANDBUFFER_H_
