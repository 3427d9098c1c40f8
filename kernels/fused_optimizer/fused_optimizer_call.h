// Arguments of one update, from a checked call: for the kernels of every device.

#ifndef METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_CALL_H_
#define METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_CALL_H_

#include <cmath>

#include "kernels/fused_optimizer/fused_optimizer_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

template <typename Real>
AdamParams<Real> ToAdamParams(const OpCall& call) {
  const int64_t step = call.Scalar<int64_t>("step");
  const double lr = call.Scalar<double>("lr");
  const double beta1 = call.Scalar<double>("beta1"), beta2 = call.Scalar<double>("beta2");
  double unbias1 = 1 - std::pow(beta1, step), unbias2 = 1 - std::pow(beta2, step);
  if (call.Bool("float32_powers") && sizeof(Real) == sizeof(float)) {
    const float count = static_cast<float>(step);
    unbias1 = 1.0f - std::pow(static_cast<float>(beta1), count);
    unbias2 = 1.0f - std::pow(static_cast<float>(beta2), count);
  }
  return {static_cast<Real>(lr * std::sqrt(unbias2) / unbias1), static_cast<Real>(1 - beta1),
          static_cast<Real>(1 - beta2), static_cast<Real>(call.Scalar<double>("epsilon")),
          static_cast<Real>(lr * call.Scalar<double>("weight_decay"))};
}

template <typename Real>
SgdParams<Real> ToSgdParams(const OpCall& call) {
  const double lr = call.Scalar<double>("lr");
  return {static_cast<Real>(lr), static_cast<Real>(call.Scalar<double>("momentum")),
          static_cast<Real>(lr * call.Scalar<double>("weight_decay"))};
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_CALL_H_
