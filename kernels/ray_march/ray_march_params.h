// Ray marching's structs, read by host code and by the shader alike.
//
// Positions are measured in units of the box: u = (x - aabb_min) / (aabb_max - aabb_min), so that
// level 0 of the occupancy grid is [0, 1]^3 and level l is 2^l times as large around the same
// centre. A point belongs to the smallest level that holds it. Bit c of a level is bit c % 8 of
// byte c / 8, with c = (i * resolution + j) * resolution + k for cell (i, j, k) along (x, y, z).
//
// A ray's steps are t_0 = t_near + jitter dt(t_near), t_{n+1} = t_n + dt(t_n), dt(t) = max(step,
// cone_angle t). Step n is a sample if its middle lies in an occupied cell: the steps do not depend
// on the occupancy, which only says which of them count.

#ifndef METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_PARAMS_H_
#define METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define RAY_MARCH_MAX_LEVELS 16
#define RAY_MARCH_MAX_RESOLUTION 1024
// Beyond, t_n = t_0 + n step is not exact enough in float32 to tell neighbouring steps apart.
#define RAY_MARCH_MAX_STEPS 4194304

// Infinity: the largest float is as far, and arithmetic on it yields no NaN.
#define RAY_MARCH_FAR 3.402823466e38f

// The count of a ray that has more than RAY_MARCH_MAX_STEPS steps.
#define RAY_MARCH_TOO_LONG 0xffffffffu

struct RayMarchParams {
  float aabb_min[3];
  float per_extent[3];  // 1 / (aabb_max - aabb_min)
  float step;
  float cone_angle;
  int32_t resolution;
  int32_t n_levels;
  uint32_t bytes_per_level;
  uint32_t max_samples;  // per ray
  uint32_t seed[2];
  uint32_t stratified;  // 0: no jitter
  uint32_t first_ray;   // number of the first one, where others march those before it
};
static_assert(sizeof(RayMarchParams) == 64, "host and shader must agree");

// Between the limits of two rays: 0 if they share one.
struct RayMarchStrides {
  uint32_t t_min;
  uint32_t t_max;
};
static_assert(sizeof(RayMarchStrides) == 8, "host and shader must agree");

struct PackOccupancyParams {
  uint64_t n_levels;
  uint64_t n_cells;  // of a level
  uint64_t bytes_per_level;
};
static_assert(sizeof(PackOccupancyParams) == 24, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_PARAMS_H_
