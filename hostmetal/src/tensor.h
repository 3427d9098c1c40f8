// MTLTensor.
#ifndef HOSTMETAL_SRC_TENSOR_H_
#define HOSTMETAL_SRC_TENSOR_H_

#include "hostmetal/msl/metallib_abi.h"
#include "hostmetal/src/buffer.h"

@interface HMTensor : HMPlaced <MTLTensor> {
 @public
  metallib_tensor _described;
  MTLTensorUsage _usage;
  NSUInteger _offset;
  BOOL _over;  // a buffer of the program's, and none of its own
}
// Over `buffer`, or over memory of its own where that is nil.
+ (id<MTLTensor>)newForDevice:(HMDevice*)device
                   descriptor:(MTLTensorDescriptor*)descriptor
                       buffer:(HMBuffer*)buffer
                       offset:(NSUInteger)offset
                        error:(NSError**)error;
+ (MTLSizeAndAlign)sizeAndAlign:(MTLTensorDescriptor*)descriptor;
@end

#endif  // HOSTMETAL_SRC_TENSOR_H_
