// Checks of a robust loss' values, for every device.

#ifndef METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_
#define METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_

#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

inline void CheckRobustScale(ArgShapes* shapes, const float* scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (scale[i] <= 0)
      shapes->Require(false, "scale must be above 0, got " + ToText(scale[i]) + ".");
  }
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_
