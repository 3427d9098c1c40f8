// The focal losses' attributes as the formulas take them, and the errors of classes, for every
// device.

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
  params.z_loss = sigmoid ? 0.0f : call.Float("z_loss");
  params.balanced = sigmoid && call.Bool("balanced") ? 1 : 0;
  params.reduce_last = sigmoid && call.Bool("reduce_last") ? 1 : 0;
  return params;
}

// The class whose rows count for nothing, if there is one.
struct IgnoredClass {
  explicit IgnoredClass(const OpCall& call)
      : exists(call.Bool("ignores")), label(call.Int("ignore_index")) {}
  bool Is(int64_t other) const { return exists && other == label; }

  const bool exists;
  const int64_t label;
};

// The classes' numbers.
template <typename Label>
inline void CheckFocalClasses(OpCall& call, const Label* labels) {
  const int64_t n_rows = call.Size("rows"), n_classes = call.Size("classes");
  const IgnoredClass ignored(call);
  for (int64_t r = 0; r < n_rows && call.shapes.ok(); ++r) {
    if ((labels[r] >= 0 && labels[r] < n_classes) || ignored.Is(labels[r])) continue;
    call.shapes.Require(
        false, "targets[" + std::to_string(r) + "] must be in [0, " + std::to_string(n_classes) +
                   "), the classes of the logits, got " + std::to_string(labels[r]) + ".");
  }
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_CHECKS_H_
