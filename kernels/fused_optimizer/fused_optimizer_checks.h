// What can be wrong with an optimizer's update, for every device.

#ifndef METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_CHECKS_H_
#define METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_CHECKS_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/common/arg_shapes.h"
#include "kernels/fused_optimizer/fused_optimizer_params.h"

namespace metal_ops {

struct AdamHyperparameters {
  double lr, beta1, beta2, epsilon, weight_decay;
  int64_t step;  // 1 for the first
  bool float32_powers;
};

inline void CheckAdam(ArgShapes* checks, const AdamHyperparameters& h) {
  for (const double beta : {h.beta1, h.beta2}) {
    checks->Require(beta >= 0 && beta < 1,
                    "beta1 and beta2 must be in [0, 1), got " + std::to_string(beta) + ".");
  }
  checks->Require(h.step >= 1, "step must count from 1, got " + std::to_string(h.step) + ".");
}

template <typename Real>
AdamParams<Real> ToParams(const AdamHyperparameters& h) {
  double unbias1 = 1 - std::pow(h.beta1, h.step), unbias2 = 1 - std::pow(h.beta2, h.step);
  if (h.float32_powers && sizeof(Real) == sizeof(float)) {
    const float step = static_cast<float>(h.step);
    unbias1 = 1.0f - std::pow(static_cast<float>(h.beta1), step);
    unbias2 = 1.0f - std::pow(static_cast<float>(h.beta2), step);
  }
  return {static_cast<Real>(h.lr * std::sqrt(unbias2) / unbias1), static_cast<Real>(1 - h.beta1),
          static_cast<Real>(1 - h.beta2), static_cast<Real>(h.epsilon),
          static_cast<Real>(h.lr * h.weight_decay)};
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_CHECKS_H_
