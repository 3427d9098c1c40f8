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

// At most one of a list of inputs that is there or not.
inline void CheckAtMostOne(ArgShapes* checks, const char* list, int n) {
  checks->Require(n <= 1,
                  std::string(list) + " must be none or one, got " + std::to_string(n) + ".");
}

inline void CheckScalar(ArgShapes* checks, const char* name, const ArgShape& shape) {
  int64_t n = 1;
  for (const int64_t dim : shape.dims) n *= dim;
  if (n == 1) return;
  checks->Require(false, std::string(name) + " must be a scalar, got shape " + ToText(shape) + ".");
}

// Python's name of a dtype, whose number is the same in the C API and in C++.
inline std::string DtypeName(int dtype) {
  switch (dtype) {
    case 1:
      return "float32";
    case 2:
      return "float64";
    case 14:
      return "bfloat16";
    case 19:
      return "float16";
    default:
      return "dtype " + std::to_string(dtype);
  }
}

// A variable as an op found it.
struct UpdatedVariable {
  std::string name;
  int expected_dtype;
  int dtype;
  ArgShape shape;
};

inline void CheckVariable(ArgShapes* checks, const UpdatedVariable& var, const ArgShape& gradient) {
  checks->Require(var.dtype == var.expected_dtype, var.name + " must be of dtype " +
                                                       DtypeName(var.expected_dtype) + ", got " +
                                                       DtypeName(var.dtype) + ".");
  checks->Require(var.shape.dims == gradient.dims, var.name + " must have the gradient's shape " +
                                                       ToText(gradient) + ", got " +
                                                       ToText(var.shape) + ".");
}

inline void CheckDistinct(ArgShapes* checks, const std::string& name, bool distinct) {
  if (distinct) return;
  checks->Require(false,
                  name + " must be a variable of its own, got one that is another argument too.");
}

// For FailedPrecondition.
inline std::string NoValue(const std::string& op, const std::string& name) {
  return op + ": " + name +
         " must be a variable with a value, got one without. Initialize it (an optimizer's by "
         "optimizer.build(variables)).";
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
