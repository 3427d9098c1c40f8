// What can be wrong with a Softshrink call, for every device.

#ifndef METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_CHECKS_H_
#define METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_CHECKS_H_

#include <vector>

#include "kernels/common/arg_shapes.h"

namespace metal_ops {

inline void CheckSoftshrinkLambda(ArgShapes* shapes, float lambda) {
  shapes->Require(lambda >= 0, "lambd must be 0 or more, got " + ToText(lambda) + ".");
}

// gradients, features.
inline void CheckSoftshrinkGrad(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  shapes->ExpectLike("gradients", args[0], "features", args[1]);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_CHECKS_H_
