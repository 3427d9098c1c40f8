// What can be wrong with the shapes of ScaleSlope and ScaleSlopeSum, for every device.

#ifndef METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_CHECKS_H_
#define METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_CHECKS_H_

#include <cstdint>
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

// incoming, slope, parameter.
inline void CheckScaleSlopeSum(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  CheckScaleSlope(shapes, args);
  const ArgShape &slope = args[1], &parameter = args[2];
  if (slope.rank() < 0 || parameter.rank() <= 0) return;
  const int64_t channels = slope.rank() > 0 ? slope.dims.back() : 1;
  shapes->Require(parameter.rank() == 1 &&
                      (channels < 0 || parameter.dims[0] < 0 || parameter.dims[0] == channels),
                  "parameter must be a scalar or a vector of slope's last dimension, " +
                      std::to_string(channels) + ", got shape " + ToText(parameter) + ".");
}

// A parameter of every channel has as many values as slope's rows; a scalar takes all of slope.
inline int64_t ScaleSlopeChannels(const ArgShape& parameter) {
  return parameter.rank() > 0 ? parameter.dims[0] : 1;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_CHECKS_H_
