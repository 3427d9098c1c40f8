// What can be wrong with the shapes of a distortion loss, for every device.

#ifndef METAL_OPS_KERNELS_DISTORTION_LOSS_DISTORTION_LOSS_CHECKS_H_
#define METAL_OPS_KERNELS_DISTORTION_LOSS_DISTORTION_LOSS_CHECKS_H_

#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"
#include "kernels/common/packed_samples.h"

namespace metal_ops {

// weights, t_starts, t_ends, packed_info.
inline void CheckDistortionLoss(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  const std::vector<std::string> samples = ExpectSamples(shapes, "weights", args[0], args[3]);
  if (samples.empty()) return;
  shapes->Expect("t_starts", args[1], samples);
  shapes->Expect("t_ends", args[2], samples);
}

// incoming, slope, packed_info.
inline void CheckScaleRays(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  if (ExpectSamples(shapes, "slope", args[1], args[2]).empty()) return;
  shapes->Expect("incoming", args[0], {"rays"});
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_DISTORTION_LOSS_DISTORTION_LOSS_CHECKS_H_
