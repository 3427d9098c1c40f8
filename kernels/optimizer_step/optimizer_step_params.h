// Arguments of one dispatch of an optimizer's step. Its numbers are tensors of the device, as the graph
// has them.

#ifndef METAL_OPS_KERNELS_OPTIMIZER_STEP_OPTIMIZER_STEP_PARAMS_H_
#define METAL_OPS_KERNELS_OPTIMIZER_STEP_OPTIMIZER_STEP_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct OptimizerStepParams {
  uint64_t n_elements;
  // Whether the optional state of an optimizer is there: AMSGrad's maximum or RMSprop's average ...
  uint32_t second;
  // ... and RMSprop's momentum.
  uint32_t momentum;
};
static_assert(sizeof(OptimizerStepParams) == 16, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_OPTIMIZER_STEP_OPTIMIZER_STEP_PARAMS_H_
