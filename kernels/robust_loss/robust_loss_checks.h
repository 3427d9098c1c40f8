// What can be wrong with the shapes of a robust loss, for every device.

#ifndef METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_
#define METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_

#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"

namespace metal_ops {

// predictions, targets, alpha, scale. Empty targets are none.
inline void CheckRobustLoss(ArgShapes* shapes, const std::vector<ArgShape>& args,
                            bool reduce_last) {
  const ArgShape &predictions = args[0], &targets = args[1];
  if (predictions.rank() < 0) return;
  bool none = false;
  for (const int64_t dim : targets.dims) none = none || dim == 0;
  if (targets.rank() >= 0 && !none) {
    bool same = targets.rank() == predictions.rank();
    for (int i = 0; same && i < predictions.rank(); ++i) {
      const int64_t a = predictions.dims[i], b = targets.dims[i];
      same = a < 0 || b < 0 || a == b;
    }
    shapes->Require(same, "targets must be shaped like predictions, " + ToText(predictions) +
                              ", got " + ToText(targets) + ".");
  }
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

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_CHECKS_H_
