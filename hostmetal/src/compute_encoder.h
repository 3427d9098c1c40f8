// MTLComputeCommandEncoder.
#ifndef HOSTMETAL_SRC_COMPUTE_ENCODER_H_
#define HOSTMETAL_SRC_COMPUTE_ENCODER_H_

#include "hostmetal/src/bindings.h"
#include "hostmetal/src/encoder.h"
#include "hostmetal/src/pipeline.h"

@interface HMComputeCommandEncoder : HMEncoder <MTLComputeCommandEncoder> {
  MTLDispatchType _dispatchType;
  HMComputePipelineState* _pipeline;
  hostmetal::Bindings* _bound;
  BOOL _barrier;  // the next dispatch must wait for those before it
}
- (id)initWithCommandBuffer:(HMCommandBuffer*)buffer dispatchType:(MTLDispatchType)dispatchType;
// It encodes into another encoder, which is open and stays so.
- (id)initInside:(HMEncoder*)encoder;
@end

#endif  // HOSTMETAL_SRC_COMPUTE_ENCODER_H_
