// One command of an indirect command buffer.
#ifndef HOSTMETAL_MTLINDIRECTCOMMANDENCODER_H_
#define HOSTMETAL_MTLINDIRECTCOMMANDENCODER_H_

#import <Metal/MTLDefines.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer;
@protocol MTLComputePipelineState;

// A broken command is an error of the command buffer that executes it. A command keeps its pipeline
// and its buffers until it is reset or encoded anew.
@protocol MTLIndirectComputeCommand <NSObject>
// A pipeline that was made with supportIndirectCommandBuffers.
- (void)setComputePipelineState:(id<MTLComputePipelineState>)pipelineState;
- (void)setKernelBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
// Without effect: no kernel here has stage-in arguments.
- (void)setStageInRegion:(MTLRegion)region;
- (void)concurrentDispatchThreadgroups:(MTLSize)threadgroupsPerGrid
                 threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup;
- (void)concurrentDispatchThreads:(MTLSize)threadsPerGrid
            threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup;
// The command starts when those before it are done; without, it may run together with them.
- (void)setBarrier;
- (void)clearBarrier;
- (void)reset;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLINDIRECTCOMMANDENCODER_H_
