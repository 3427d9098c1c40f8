// PackRayIndices, which runs in host memory on every device.

#ifndef METAL_OPS_KERNELS_PACKED_SCAN_PACK_RAY_INDICES_H_
#define METAL_OPS_KERNELS_PACKED_SCAN_PACK_RAY_INDICES_H_

#include <cstdint>
#include <string>

#include "kernels/runtime/op.h"

namespace metal_ops {

// packed_info [n_rays, 2] of ascending ray indices; errors are in call.shapes.
template <typename I>
void PackRayIndices(OpCall& call, const I* ray_indices, int64_t n_rays, I* packed_info) {
  const int64_t n_samples = call.Size("samples");
  int64_t next = 0;  // the first ray whose start is not known yet
  for (int64_t i = 0; i < n_samples; ++i) {
    const int64_t ray = ray_indices[i];
    if (ray == next - 1 && next > 0) continue;
    if (ray < next || ray >= n_rays) {
      const std::string rays = std::to_string(n_rays);
      call.shapes.Require(false, "ray_indices[" + std::to_string(i) + "] must be in [" +
                                     std::to_string(next > 0 ? next - 1 : 0) + ", " + rays +
                                     "), as indices ascend and there are " + rays + " rays, got " +
                                     std::to_string(ray) + ". Sort the samples by ray.");
      return;
    }
    for (; next <= ray; ++next) packed_info[2 * next] = static_cast<I>(i);
  }
  for (; next < n_rays; ++next) packed_info[2 * next] = static_cast<I>(n_samples);
  for (int64_t r = 0; r < n_rays; ++r) {
    const I end = r + 1 < n_rays ? packed_info[2 * r + 2] : static_cast<I>(n_samples);
    packed_info[2 * r + 1] = end - packed_info[2 * r];
  }
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_PACKED_SCAN_PACK_RAY_INDICES_H_
