// What can be wrong with the shapes of a scan's arguments, for every device.

#ifndef METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_CHECKS_H_
#define METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_CHECKS_H_

#include <cstdint>
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

// The value of n_rays.
inline void CheckRayCount(ArgShapes* shapes, int64_t n_rays) {
  shapes->Require(n_rays >= 0, "n_rays must be at least 0, got " + std::to_string(n_rays) + ".");
}

// packed_info [n_rays, 2] of ascending ray indices. The message is "" or what is wrong with them.
template <typename I>
std::string PackRayIndices(const std::string& op, const I* ray_indices, int64_t n_samples,
                           int64_t n_rays, I* packed_info) {
  int64_t next = 0;  // the first ray whose start is not known yet
  for (int64_t i = 0; i < n_samples; ++i) {
    const int64_t ray = ray_indices[i];
    if (ray == next - 1 && next > 0) continue;
    if (ray < next || ray >= n_rays) {
      const std::string rays = std::to_string(n_rays);
      return op + ": ray_indices[" + std::to_string(i) + "] must be in [" +
             std::to_string(next > 0 ? next - 1 : 0) + ", " + rays +
             "), as indices ascend and there are " + rays + " rays, got " + std::to_string(ray) +
             ". Sort the samples by ray.";
    }
    for (; next <= ray; ++next) packed_info[2 * next] = static_cast<I>(i);
  }
  for (; next < n_rays; ++next) packed_info[2 * next] = static_cast<I>(n_samples);
  for (int64_t r = 0; r < n_rays; ++r) {
    const I end = r + 1 < n_rays ? packed_info[2 * r + 2] : static_cast<I>(n_samples);
    packed_info[2 * r + 1] = end - packed_info[2 * r];
  }
  return "";
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_CHECKS_H_
