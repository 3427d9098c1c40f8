// A ray-marching call as its kernels take it, for every device.

#ifndef METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_CALL_H_
#define METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_CALL_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/ray_march/ray_march_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// Bytes for a bit a cell. Not n_cells + 7, which may be beyond int64 where there are no levels.
inline int64_t BytesOfCells(int64_t n_cells) { return n_cells / 8 + (n_cells % 8 > 0); }

inline int64_t BytesPerLevel(const OpCall& call) {
  const int64_t resolution = call.Int("resolution");
  return BytesOfCells(resolution * resolution * resolution);
}

// The error when a ray has more than RAY_MARCH_MAX_STEPS steps; -1: none has.
inline void RequireFewSteps(OpCall& call, int64_t bad_ray) {
  call.shapes.Require(bad_ray < 0,
                      "step must cut a ray into at most " + std::to_string(RAY_MARCH_MAX_STEPS) +
                          " steps, got more on ray " + std::to_string(bad_ray) + " with " +
                          ToText(call.Float("step")) +
                          ". Use a larger step, a smaller aabb, or directions of length 1.");
}

inline void RequireIndexable(OpCall& call, int64_t n_samples) {
  call.shapes.Require(
      call.Type("Tindices") == DType::kInt64 || n_samples <= std::numeric_limits<int32_t>::max(),
      "Tindices must hold " + std::to_string(n_samples) +
          " samples, got int32. Use int64, or fewer rays at a time.");
}

// Shared by all rays.
inline RayMarchParams MakeRayMarchParams(const OpCall& call) {
  float aabb[6];
  std::memcpy(aabb, call.HostValue(3), sizeof(aabb));
  RayMarchParams params = {};
  for (int a = 0; a < 3; ++a) {
    params.aabb_min[a] = aabb[a];
    params.per_extent[a] = 1.0f / (aabb[a + 3] - aabb[a]);
  }
  params.step = call.Float("step");
  params.cone_angle = call.Float("cone_angle");
  params.resolution = static_cast<int32_t>(call.Int("resolution"));
  params.n_levels = static_cast<int32_t>(call.Size("levels"));
  params.bytes_per_level = static_cast<uint32_t>(BytesPerLevel(call));
  params.max_samples = static_cast<uint32_t>(call.Int("max_samples_per_ray"));
  std::memcpy(params.seed, call.HostValue(6), sizeof(params.seed));
  params.stratified = call.Bool("stratified") ? 1 : 0;
  return params;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_CALL_H_
