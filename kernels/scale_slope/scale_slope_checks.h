// What can be wrong with the shapes of ScaleSlope, for every device.

#ifndef METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_CHECKS_H_
#define METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_CHECKS_H_

#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"

namespace metal_ops {

// incoming, slope.
inline void CheckScaleSlope(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  const ArgShape &incoming = args[0], &slope = args[1];
  if (incoming.rank() < 0 || slope.rank() < 0) return;
  bool fits = incoming.rank() == slope.rank() || incoming.rank() + 1 == slope.rank();
  for (int i = 0; fits && i < incoming.rank(); ++i) {
    fits = incoming.dims[i] < 0 || slope.dims[i] < 0 || incoming.dims[i] == slope.dims[i];
  }
  shapes->Require(fits, "incoming must be shaped like slope, " + ToText(slope) +
                            ", or that without the last dimension, got " + ToText(incoming) + ".");
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_CHECKS_H_
