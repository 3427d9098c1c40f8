// What can be wrong with a focal loss, for every device.

#ifndef METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_CHECKS_H_
#define METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"
#include "kernels/focal_loss/focal_loss_params.h"

namespace metal_ops {

inline void CheckFocalAttrs(ArgShapes* shapes, float gamma, float label_smoothing) {
  shapes->Require(gamma >= 0,
                  "gamma must be 0 or more, got " + ToText(gamma) + ". 0 is the cross entropy.");
  shapes->Require(label_smoothing >= 0 && label_smoothing <= 1,
                  "label_smoothing must be in [0, 1], got " + ToText(label_smoothing) + ".");
}

// logits, targets.
inline void CheckSigmoidFocal(ArgShapes* shapes, const std::vector<ArgShape>& args,
                              bool reduce_last) {
  const ArgShape &logits = args[0], &targets = args[1];
  if (logits.rank() < 0) return;
  shapes->ExpectLike("targets", targets, "logits", logits);
  shapes->Require(!reduce_last || logits.rank() > 0,
                  "logits must have a last dimension to reduce, got a scalar.");
}

// logits, targets (of each class, or the class's number if `sparse`).
inline void CheckSoftmaxFocal(ArgShapes* shapes, const std::vector<ArgShape>& args, bool sparse) {
  shapes->Expect("logits", args[0], {"rows", "classes"});
  if (sparse) {
    shapes->Expect("targets", args[1], {"rows"}, "Integer targets are the rows' classes.");
  } else {
    shapes->Expect("targets", args[1], {"rows", "classes"});
  }
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
