// What can be wrong with a ray-marching call, for every device.

#ifndef METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_CHECKS_H_
#define METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_CHECKS_H_

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"
#include "kernels/ray_march/ray_march_params.h"

namespace metal_ops {

struct RayMarchAttrs {
  float step = 0;
  float cone_angle = 0;
  int64_t resolution = 0;
  int64_t max_samples_per_ray = 0;
};

// Bytes for a bit a cell. Not n_cells + 7, which may be beyond int64 where there are no levels.
inline int64_t BytesOfCells(int64_t n_cells) { return n_cells / 8 + (n_cells % 8 > 0); }

inline int64_t BytesPerLevel(int64_t resolution) {
  return BytesOfCells(resolution * resolution * resolution);
}

inline void CheckResolution(ArgShapes* shapes, int64_t resolution) {
  shapes->Require(resolution >= 1 && resolution <= RAY_MARCH_MAX_RESOLUTION,
                  "resolution must be between 1 and " + std::to_string(RAY_MARCH_MAX_RESOLUTION) +
                      " cells along an edge, got " + std::to_string(resolution) + ".");
}

inline void CheckRayMarchAttrs(ArgShapes* shapes, const RayMarchAttrs& attrs) {
  shapes->Require(attrs.step > 0 && std::isfinite(attrs.step),
                  "step must be a length above 0, got " + std::to_string(attrs.step) + ".");
  shapes->Require(attrs.cone_angle >= 0 && attrs.cone_angle < 1,
                  "cone_angle must be in [0, 1), got " + std::to_string(attrs.cone_angle) +
                      ". 0 makes all steps equal; 1 / 256 is usual for large scenes.");
  CheckResolution(shapes, attrs.resolution);
  shapes->Require(
      attrs.max_samples_per_ray >= 1 && attrs.max_samples_per_ray <= RAY_MARCH_MAX_STEPS,
      "max_samples_per_ray must be between 1 and " + std::to_string(RAY_MARCH_MAX_STEPS) +
          ", got " + std::to_string(attrs.max_samples_per_ray) + ".");
}

// origins, directions, occupancy, aabb, t_min, t_max, seed.
inline void CheckRayMarch(ArgShapes* shapes, const std::vector<ArgShape>& args,
                          const RayMarchAttrs& attrs) {
  shapes->Expect("origins", args[0], {"rays", "3"});
  shapes->Expect("directions", args[1], {"rays", "3"});
  const std::string bytes = std::to_string(BytesPerLevel(attrs.resolution));
  shapes->Expect("occupancy", args[2], {"levels", bytes},
                 "A level has resolution^3 cells, 8 a byte: resolution is " +
                     std::to_string(attrs.resolution) + ".");
  const int64_t n_levels = shapes->Size("levels");
  shapes->Require(n_levels < 0 || (n_levels >= 1 && n_levels <= RAY_MARCH_MAX_LEVELS),
                  "occupancy must have between 1 and " + std::to_string(RAY_MARCH_MAX_LEVELS) +
                      " levels, got " + std::to_string(n_levels) + ".");
  // Else a coarse cell could reach into the finer level, and skipping it would skip that too.
  shapes->Require(n_levels <= 1 || attrs.resolution % 4 == 0,
                  "resolution must be a multiple of 4 with several levels, got " +
                      std::to_string(attrs.resolution) + ".");
  shapes->Expect("aabb", args[3], {"6"}, "It is (x_min, y_min, z_min, x_max, y_max, z_max).");
  for (int i = 4; i < 6; ++i) {
    if (args[i].rank() != 0) shapes->Expect(i == 4 ? "t_min" : "t_max", args[i], {"rays"});
  }
  shapes->Expect("seed", args[6], {"2"});
}

// densities, threshold of PackOccupancy.
inline void CheckPackOccupancy(ArgShapes* shapes, const std::vector<ArgShape>& args) {
  shapes->Expect("densities", args[0], {"levels", "cells"}).Expect("threshold", args[1], {});
}

// The values of aabb.
inline void CheckAabb(ArgShapes* shapes, const float* aabb) {
  for (int axis = 0; axis < 3; ++axis) {
    const float extent = aabb[axis + 3] - aabb[axis];
    shapes->Require(extent > 0 && std::isfinite(extent) && std::isfinite(1 / extent),
                    std::string("aabb must reach from a smaller to a larger ") + "xyz"[axis] +
                        ", got " + std::to_string(aabb[axis]) + " to " +
                        std::to_string(aabb[axis + 3]) + ".");
  }
}

// What the marching says when a ray has more than RAY_MARCH_MAX_STEPS steps.
inline void RequireFewSteps(ArgShapes* shapes, int64_t bad_ray, float step) {
  std::ostringstream text;
  text << "step must cut a ray into at most " << RAY_MARCH_MAX_STEPS << " steps, got more on ray "
       << bad_ray << " with " << step
       << ". Use a larger step, a smaller aabb, or directions of length 1.";
  shapes->Require(bad_ray < 0, text.str());
}

inline void RequireIndexable(ArgShapes* shapes, int64_t n_samples, int64_t most) {
  shapes->Require(n_samples <= most,
                  "Tindices must hold " + std::to_string(n_samples) +
                      " samples, got int32. Use int64, or fewer rays at a time.");
}

// What all rays share. Arguments have been checked.
inline RayMarchParams MakeRayMarchParams(const RayMarchAttrs& attrs, bool stratified,
                                         int64_t n_levels, const float* aabb, const int32_t* seed) {
  RayMarchParams params = {};
  for (int a = 0; a < 3; ++a) {
    params.aabb_min[a] = aabb[a];
    params.per_extent[a] = 1.0f / (aabb[a + 3] - aabb[a]);
  }
  params.step = attrs.step;
  params.cone_angle = attrs.cone_angle;
  params.resolution = static_cast<int32_t>(attrs.resolution);
  params.n_levels = static_cast<int32_t>(n_levels);
  params.bytes_per_level = static_cast<uint32_t>(BytesPerLevel(attrs.resolution));
  params.max_samples = static_cast<uint32_t>(attrs.max_samples_per_ray);
  for (int i = 0; i < 2; ++i) params.seed[i] = static_cast<uint32_t>(seed[i]);
  params.stratified = stratified ? 1 : 0;
  return params;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_CHECKS_H_
