// Arguments of one update of a variable, for host code and shader alike: all that follows from the
// hyperparameters and the step, worked out once in double and rounded.
//
// Adam (Kingma and Ba 2015, end of section 2, epsilon being "epsilon hat"), AMSGrad (Reddi et al.
// 2018), decoupled weight decay (Loshchilov and Hutter 2019):
//   x -= decay x;  m += (g - m) (1 - beta1);  v += (g^2 - v) (1 - beta2);  h = max(h, v)
//   x -= alpha m / (sqrt(h or v) + epsilon),  alpha = lr sqrt(1 - beta2^t) / (1 - beta1^t)
// SGD with momentum (Polyak 1964; Nesterov's after Sutskever et al. 2013):
//   x -= decay x;  m = momentum m - lr g;  x += m, or momentum m - lr g (Nesterov)

#ifndef METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_PARAMS_H_
#define METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Real is float, or double for float64 variables on the CPU.
template <typename Real>
struct AdamParams {
  Real alpha;
  Real one_minus_beta1;
  Real one_minus_beta2;
  Real epsilon;
  Real decay;  // lr * weight_decay
};

template <typename Real>
struct SgdParams {
  Real lr;
  Real momentum;
  Real decay;  // lr * weight_decay
};

// Arguments of one dispatch of the shader. An op fills in its own part.
struct FusedUpdateParams {
  uint64_t n_elements;
  uint64_t row;  // elements of a row: a slice of the first dimension
  AdamParams<float> adam;
  SgdParams<float> sgd;
};
static_assert(sizeof(FusedUpdateParams) == 48, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_PARAMS_H_
