// What can be wrong with the shapes of a scan's arguments, for every device.

#ifndef METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_CHECKS_H_
#define METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_CHECKS_H_

#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"
#include "kernels/common/packed_samples.h"

namespace metal_ops {

// inputs, packed_info; or gradients, inputs, packed_info.
inline void CheckPackedScan(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  const ArgShape& inputs = args[args.size() - 2];
  const std::vector<std::string> samples =
      ExpectSamples(shapes, "inputs", inputs, args[args.size() - 1]);
  if (args.size() > 2 && !samples.empty()) shapes->Expect("gradients", args[0], samples);
}

// ray_indices, n_rays.
inline void CheckPackRayIndices(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  shapes->Expect("ray_indices", args[0], {"samples"});
  shapes->Expect("n_rays", args[1], {});
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_CHECKS_H_
