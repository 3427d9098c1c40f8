// Marching one ray: the formulas of ray_march_params.h, read by the CPU kernel and by the shader.

#ifndef METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_STEPS_H_
#define METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_STEPS_H_

#include "kernels/msl/both.h"
#include "kernels/ray_march/ray_march_params.h"

// Uniform in [0, 1) from seed and ray: pcg3d of Jarzynski and Olano 2020, "Hash functions for GPU
// rendering", its upper 24 bits.
inline float ray_march_jitter(METAL_OPS_CONSTANT const RayMarchParams& params, uint32_t ray) {
  uint32_t x = params.seed[0] * 1664525u + 1013904223u;
  uint32_t y = params.seed[1] * 1664525u + 1013904223u;
  uint32_t z = (params.first_ray + ray) * 1664525u + 1013904223u;
  x += y * z, y += z * x, z += x * y;
  x ^= x >> 16, y ^= y >> 16, z ^= z >> 16;
  x += y * z, y += z * x, z += x * y;
  return float(z >> 8) * 5.9604644775390625e-8f;
}

// One ray in units of the box: u(t) = origin + t direction.
struct BoxRay {
  float origin[3];
  float direction[3];
  float per_direction[3];
};

// Knows of no empty blocks.
struct NoBlocks {};

inline int ray_march_empty_edge(METAL_OPS_THREAD const NoBlocks&, int,
                                METAL_OPS_THREAD const int*) {
  return 0;
}

// Whether the cell around u(t) is occupied; if not, t_exit is where the ray leaves it, or the block
// around it if that is known to be empty: ray_march_empty_edge(blocks, level, cell) is the cells
// along the edge of such an aligned block, or 0.
template <typename Blocks>
inline bool ray_march_occupied(METAL_OPS_CONSTANT const RayMarchParams& params,
                               METAL_OPS_DEVICE const uint8_t* bits,
                               METAL_OPS_THREAD const Blocks& blocks,
                               METAL_OPS_THREAD const BoxRay& ray, float t,
                               METAL_OPS_THREAD float& t_exit) {
  float u[3];
  for (int a = 0; a < 3; ++a) u[a] = ray.origin[a] + t * ray.direction[a];
  // The smallest l with farthest <= 2^(l-1), exactly.
  int level = 0;
  if (params.n_levels > 1) {
    float farthest = 0.0f;
    for (int a = 0; a < 3; ++a) farthest = both::max(farthest, both::fabs(u[a] - 0.5f));
    if (farthest > 0.5f) {
      const float significand = both::frexp(farthest, level);
      level += significand > 0.5f ? 1 : 0;
      level = level < params.n_levels ? level : params.n_levels - 1;
    }
  }
  // 2^level, and its inverse, are exact.
  const float size = float(1 << level), per_size = 1.0f / size;
  const float resolution = float(params.resolution);
  uint32_t index = 0;
  int cell[3];
  for (int a = 0; a < 3; ++a) {
    const float v = ((u[a] - 0.5f) * per_size + 0.5f) * resolution;
    // Clamped as float: a point on the upper face belongs to the last cell.
    cell[a] = int(both::min(both::max(v, 0.0f), resolution - 1.0f));
    index = index * uint32_t(params.resolution) + uint32_t(cell[a]);
  }
  int edge = ray_march_empty_edge(blocks, level, cell);
  if (edge == 0) {
    edge = 1;
    const uint32_t byte = bits[uint32_t(level) * params.bytes_per_level + index / 8];
    if (((byte >> (index % 8)) & 1) != 0) return true;
  }
  const float per_resolution = 1.0f / resolution;
  float exit = RAY_MARCH_FAR;
  for (int a = 0; a < 3; ++a) {
    if (ray.direction[a] == 0.0f) continue;
    const int first = cell[a] & -edge;
    const float face = float(ray.direction[a] > 0.0f ? first + edge : first);
    const float u_face = (face * per_resolution - 0.5f) * size + 0.5f;
    exit = both::min(exit, (u_face - ray.origin[a]) * ray.per_direction[a]);
  }
  t_exit = exit;
  return false;
}

// A part of a ray: the n-th of so many runs of steps. Where a step's place depends on the one before,
// and where samples might have to be counted together, the first part is the whole ray.
struct RayPart {
  uint32_t n, n_parts;
};

// Calls ray_march_take(sink, t_start, t_end) for each sample of a part of a ray, in order. False if
// there are too many steps to march. `blocks` only makes it faster.
template <typename Sink, typename Blocks>
inline bool ray_march_steps(METAL_OPS_CONSTANT const RayMarchParams& params,
                            METAL_OPS_DEVICE const uint8_t* bits,
                            METAL_OPS_DEVICE const float* origin,
                            METAL_OPS_DEVICE const float* direction, float t_min, float t_max,
                            uint32_t ray_number, METAL_OPS_THREAD Sink& sink,
                            METAL_OPS_THREAD const Blocks& blocks, RayPart part = {0, 1}) {
  BoxRay ray;
  float near = both::max(t_min, 0.0f), far = both::min(t_max, RAY_MARCH_FAR);
  const float reach = float(1 << (params.n_levels - 1)) * 0.5f;  // of the largest level
  bool finite = t_min == t_min && t_max == t_max, moves = false;
  for (int a = 0; a < 3; ++a) {
    finite = finite && both::isfinite(origin[a]) && both::isfinite(direction[a]);
    ray.origin[a] = (origin[a] - params.aabb_min[a]) * params.per_extent[a];
    ray.direction[a] = direction[a] * params.per_extent[a];
    ray.per_direction[a] = 1.0f / ray.direction[a];
    if (ray.direction[a] == 0.0f) {
      if (both::fabs(ray.origin[a] - 0.5f) > reach) far = -RAY_MARCH_FAR;
      continue;
    }
    moves = true;
    const float t0 = (0.5f - reach - ray.origin[a]) * ray.per_direction[a];
    const float t1 = (0.5f + reach - ray.origin[a]) * ray.per_direction[a];
    near = both::max(near, both::min(t0, t1));
    far = both::min(far, both::max(t0, t1));
  }
  if (!finite || !moves || !(near < far)) return true;

  const float step = params.step, cone = params.cone_angle;
  float start = near;
  if (params.stratified != 0) {
    start += ray_march_jitter(params, ray_number) * both::max(step, cone * near);
  }
  uint32_t left = params.max_samples;
  float t_exit = 0.0f;
  if (cone == 0.0f) {
    if (!((far - start) / step < float(RAY_MARCH_MAX_STEPS))) return false;
    const float per_step = 1.0f / step;
    float n = 0.0f, n_end = RAY_MARCH_FAR;
    if (part.n_parts > 1) {
      const float n_steps = (far - start) * per_step;
      if (n_steps < float(params.max_samples)) {
        const float each = float(int(n_steps / float(part.n_parts))) + 1.0f;
        n = float(part.n) * each;
        if (part.n + 1 < part.n_parts) n_end = n + each;
      } else if (part.n > 0) {
        return true;
      }
    }
    while (left > 0 && n < n_end) {
      const float middle = start + (n + 0.5f) * step;
      if (!(middle < far)) break;
      if (ray_march_occupied(params, bits, blocks, ray, middle, t_exit)) {
        ray_march_take(sink, start + n * step, start + (n + 1.0f) * step);
        --left;
        n += 1.0f;
      } else {
        // On to the first step behind the exit, or one that is so little before it that rounding
        // could have it on the other side: that may cost one look more, never a sample.
        const float steps = (both::min(t_exit, far) - start) * per_step;
        const float inside = steps - 0.75f - steps * 4e-6f;
        n = both::max(n + 1.0f, float(int(both::max(inside, 0.0f))) + 1.0f);
      }
    }
    return true;
  }
  if (part.n > 0) return true;
  int n_steps = 0;
  for (float t = start; left > 0;) {
    float dt = both::max(step, cone * t);
    if (!(t + 0.5f * dt < far)) break;
    if (ray_march_occupied(params, bits, blocks, ray, t + 0.5f * dt, t_exit)) {
      ray_march_take(sink, t, t + dt);
      --left;
      t += dt;
      if (++n_steps > RAY_MARCH_MAX_STEPS) return false;
    } else {
      do {
        t += dt;
        dt = both::max(step, cone * t);
        if (++n_steps > RAY_MARCH_MAX_STEPS) return false;
      } while (t + 1.5f * dt < t_exit);
    }
  }
  return true;
}

template <typename Sink>
inline bool ray_march_steps(METAL_OPS_CONSTANT const RayMarchParams& params,
                            METAL_OPS_DEVICE const uint8_t* bits,
                            METAL_OPS_DEVICE const float* origin,
                            METAL_OPS_DEVICE const float* direction, float t_min, float t_max,
                            uint32_t ray_number, METAL_OPS_THREAD Sink& sink) {
  const NoBlocks blocks = {};
  return ray_march_steps(params, bits, origin, direction, t_min, t_max, ray_number, sink, blocks);
}

#endif  // METAL_OPS_KERNELS_RAY_MARCH_RAY_MARCH_STEPS_H_
