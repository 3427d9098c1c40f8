// MPSCommandBuffer: a command buffer that can be committed in parts.
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#include <stdio.h>

#include "hostmetal/src/command_buffer.h"

BOOL MPSSupportsMTLDevice(id<MTLDevice>) { return NO; }

@implementation MPSCommandBuffer

+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  return [[[self alloc] initWithCommandBuffer:commandBuffer] autorelease];
}
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)commandQueue {
  return [[[self alloc] initWithCommandBuffer:[commandQueue commandBuffer]] autorelease];
}
- (instancetype)initWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  if (!commandBuffer) {
    [self release];
    return nil;
  }
  if ((self = [super init])) _commandBuffer = [commandBuffer retain];
  return self;
}
- (instancetype)init {
  [self release];
  return nil;
}
- (void)dealloc {
  [_commandBuffer release];
  [super dealloc];
}

- (id<MTLCommandBuffer>)commandBuffer {
  return _commandBuffer;
}
- (id<MTLCommandBuffer>)rootCommandBuffer {
  return [(id)_commandBuffer isKindOfClass:[MPSCommandBuffer class]]
             ? [(MPSCommandBuffer*)_commandBuffer rootCommandBuffer]
             : _commandBuffer;
}
- (void)commitAndContinue {
  if ([(id)_commandBuffer isKindOfClass:[MPSCommandBuffer class]]) {
    [(MPSCommandBuffer*)_commandBuffer commitAndContinue];
    return;
  }
  MTLCommandBufferDescriptor* like = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
  [like setRetainedReferences:[_commandBuffer retainedReferences]];
  [like setErrorOptions:[_commandBuffer errorOptions]];
  id<MTLCommandBuffer> next =
      [[[_commandBuffer commandQueue] commandBufferWithDescriptor:like] retain];
  if ([(id)_commandBuffer isKindOfClass:HM_CLASS(HMCommandBuffer)]) {
    ((HMCommandBuffer*)next)->_state->log.SetAs(((HMCommandBuffer*)_commandBuffer)->_state->log);
  }
  [_commandBuffer commit];
  [_commandBuffer release];
  _commandBuffer = next;
}
- (void)prefetchHeapForWorkloadSize:(size_t)size {
}

// All others are those of the one that is encoded into.
- (id<MTLDevice>)device {
  return [_commandBuffer device];
}
- (id<MTLCommandQueue>)commandQueue {
  return [_commandBuffer commandQueue];
}
- (BOOL)retainedReferences {
  return [_commandBuffer retainedReferences];
}
- (MTLCommandBufferErrorOption)errorOptions {
  return [_commandBuffer errorOptions];
}
- (NSString*)label {
  return [_commandBuffer label];
}
- (void)setLabel:(NSString*)label {
  [_commandBuffer setLabel:label];
}
- (MTLCommandBufferStatus)status {
  return [_commandBuffer status];
}
- (NSError*)error {
  return [_commandBuffer error];
}
- (CFTimeInterval)kernelStartTime {
  return [_commandBuffer kernelStartTime];
}
- (CFTimeInterval)kernelEndTime {
  return [_commandBuffer kernelEndTime];
}
- (CFTimeInterval)GPUStartTime {
  return [_commandBuffer GPUStartTime];
}
- (CFTimeInterval)GPUEndTime {
  return [_commandBuffer GPUEndTime];
}
- (void)enqueue {
  [_commandBuffer enqueue];
}
- (void)commit {
  [_commandBuffer commit];
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  [_commandBuffer addScheduledHandler:block];
}
- (void)waitUntilScheduled {
  [_commandBuffer waitUntilScheduled];
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  [_commandBuffer addCompletedHandler:block];
}
- (void)waitUntilCompleted {
  [_commandBuffer waitUntilCompleted];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [_commandBuffer blitCommandEncoder];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoderWithDescriptor:(MTLBlitPassDescriptor*)descriptor {
  return [_commandBuffer blitCommandEncoderWithDescriptor:descriptor];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [_commandBuffer computeCommandEncoder];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  return [_commandBuffer computeCommandEncoderWithDispatchType:type];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:
    (MTLComputePassDescriptor*)descriptor {
  return [_commandBuffer computeCommandEncoderWithDescriptor:descriptor];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_commandBuffer encodeWaitForEvent:event value:value];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [_commandBuffer encodeSignalEvent:event value:value];
}
- (void)useResidencySet:(id<MTLResidencySet>)set {
  [_commandBuffer useResidencySet:set];
}
- (void)useResidencySets:(const id<MTLResidencySet>[])sets count:(NSUInteger)count {
  [_commandBuffer useResidencySets:sets count:count];
}
- (void)pushDebugGroup:(NSString*)string {
  [_commandBuffer pushDebugGroup:string];
}
- (void)popDebugGroup {
  [_commandBuffer popDebugGroup];
}

@end
