// MTLComputePipelineState.
#ifndef HOSTMETAL_SRC_PIPELINE_H_
#define HOSTMETAL_SRC_PIPELINE_H_

#import <Metal/Metal.h>

#include "hostmetal/src/device.h"
#include "hostmetal/src/driver.h"
#include "hostmetal/src/library.h"

namespace hostmetal {

// Where an argument's entry of metallib_launch.buffers lies; not for threadgroup memory.
inline uint32_t Slot(const metallib_argument& a) {
  return a.kind == METALLIB_TEXTURE   ? METALLIB_FIRST_TEXTURE + a.index
         : a.kind == METALLIB_SAMPLER ? METALLIB_FIRST_SAMPLER + a.index
                                      : a.index;
}

}  // namespace hostmetal

@interface HMComputePipelineState : HMObject <MTLComputePipelineState> {
 @public
  HMDevice* _device;
  NSString* _pipelineLabel;
  hostmetal::Kernel* _kernel;
  uint32_t _bindingCount;  // entries that the kernel needs of metallib_launch.buffers
  BOOL _multipleOfWidth;
  BOOL _indirect;  // commands of indirect command buffers may use it
  HMFunction* _kernelFunction;
  NSArray* _linked;          // functions that tables may have, and
  NSMutableArray* _handles;  // their handles
}
- (id)initWithFunction:(HMFunction*)function
            maxThreads:(NSUInteger)maxThreads
       multipleOfWidth:(BOOL)multipleOfWidth
                 label:(NSString*)label;
// Once, with functions that tables may have.
- (hostmetal::Failure)link:(NSArray*)functions;
@end

@interface MTLArgument (Hostmetal)
// `owner` holds the library of `info`.
- (id)initWithInfo:(const metallib_argument*)info owner:(id)owner;
@end

@interface MTLComputePipelineReflection (Hostmetal)
- (id)initWithPipeline:(HMComputePipelineState*)pipeline;
@end

#endif  // HOSTMETAL_SRC_PIPELINE_H_
