// The focal losses' attributes as the formulas take them, and what can be wrong with classes, for
// every device.

#ifndef METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_CHECKS_H_
#define METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_CHECKS_H_

#include "kernels/focal_loss/focal_loss_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline FocalLossParams FocalParams(const OpCall& call, bool sigmoid) {
  FocalLossParams params = {};
  params.alpha = call.Float("alpha");
  params.gamma = call.Float("gamma");
  params.label_smoothing = call.Float("label_smoothing");
  params.balanced = sigmoid && call.Bool("balanced") ? 1 : 0;
  params.reduce_last = sigmoid && call.Bool("reduce_last") ? 1 : 0;
  return params;
}

// The classes' numbers.
template <typename Label>
inline void CheckFocalClasses(ArgShapes* shapes, const Label* labels, int64_t n_rows,
                              int64_t n_classes) {
  for (int64_t r = 0; r < n_rows && shapes->ok(); ++r) {
    if (labels[r] >= 0 && labels[r] < n_classes) continue;
    shapes->Require(false, "targets[" + std::to_string(r) + "] must be in [0, " +
                               std::to_string(n_classes) + "), the classes of the logits, got " +
                               std::to_string(labels[r]) + ".");
  }
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_CHECKS_H_
