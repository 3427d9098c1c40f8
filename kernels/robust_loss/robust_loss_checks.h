// What can be wrong with a robust loss, for every device.

#ifndef METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_
#define METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"

namespace metal_ops {

// predictions, targets, alpha, scale. Targets of shape [0] are none.
inline void CheckRobustLoss(ArgShapes* shapes, const std::vector<ArgShape>& args,
                            bool reduce_last) {
  const ArgShape &predictions = args[0], &targets = args[1];
  if (predictions.rank() < 0) return;
  const bool none = targets.rank() == 1 && targets.dims[0] <= 0;
  if (!none) shapes->ExpectLike("targets", targets, "predictions", predictions);
  shapes->Require(!reduce_last || predictions.rank() > 0,
                  "predictions must have a last dimension to reduce, got a scalar.");
  const int64_t channels = predictions.rank() > 0 ? predictions.dims.back() : 1;
  for (int i = 2; i < 4; ++i) {
    if (args[i].rank() <= 0) continue;
    shapes->Require(
        args[i].rank() == 1 && (channels < 0 || args[i].dims[0] < 0 || args[i].dims[0] == channels),
        std::string(i == 2 ? "alpha" : "scale") +
            " must be a scalar or a vector of predictions' last dimension, " +
            std::to_string(channels) + ", got shape " + ToText(args[i]) + ".");
  }
}

inline void CheckRobustScale(ArgShapes* shapes, const float* scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (scale[i] <= 0)
      shapes->Require(false, "scale must be above 0, got " + ToText(scale[i]) + ".");
  }
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_
