// RayMarch in two passes, count and write, as sizes must be known between them; and PackOccupancy.
//
// A thread per ray, no atomics: samples lie ray after ray, whatever the threads' order.

#include <metal_stdlib>

#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/ray_march/ray_march_params.h"
#include "kernels/ray_march/ray_march_steps.h"

using namespace metal;

struct CountSink {
  uint n;
};

inline void ray_march_take(thread CountSink& sink, float, float) { ++sink.n; }

struct WriteSink {
  device float* t_starts;
  device float* t_ends;
};

inline void ray_march_take(thread WriteSink& sink, float t_start, float t_end) {
  *sink.t_starts++ = t_start;
  *sink.t_ends++ = t_end;
}

// Grid: rays.
kernel void ray_march_count(
    device const float* origins [[buffer(0)]], device const float* directions [[buffer(1)]],
    device const uchar* occupancy [[buffer(2)]], device const float* t_min [[buffer(3)]],
    device const float* t_max [[buffer(4)]], device uint* counts [[buffer(5)]],
    constant RayMarchParams& params [[buffer(6)]], constant RayMarchStrides& strides [[buffer(7)]],
    uint ray [[thread_position_in_grid]]) {
  CountSink sink;
  sink.n = 0;
  const bool fits = ray_march_steps(params, occupancy, origins + 3 * ulong(ray),
                                    directions + 3 * ulong(ray), t_min[ulong(ray) * strides.t_min],
                                    t_max[ulong(ray) * strides.t_max], ray, sink);
  counts[ray] = fits ? sink.n : RAY_MARCH_TOO_LONG;
}

// Grid: rays; `firsts` says where each one's samples go.
template <typename I>
kernel void ray_march_write(
    device const float* origins [[buffer(0)]], device const float* directions [[buffer(1)]],
    device const uchar* occupancy [[buffer(2)]], device const float* t_min [[buffer(3)]],
    device const float* t_max [[buffer(4)]], device const ulong* firsts [[buffer(5)]],
    device float* t_starts [[buffer(6)]], device float* t_ends [[buffer(7)]],
    device I* ray_indices [[buffer(8)]], constant RayMarchParams& params [[buffer(9)]],
    constant RayMarchStrides& strides [[buffer(10)]], uint ray [[thread_position_in_grid]]) {
  WriteSink sink;
  sink.t_starts = t_starts + firsts[ray];
  sink.t_ends = t_ends + firsts[ray];
  ray_march_steps(params, occupancy, origins + 3 * ulong(ray), directions + 3 * ulong(ray),
                  t_min[ulong(ray) * strides.t_min], t_max[ulong(ray) * strides.t_max], ray, sink);
  for (ulong i = firsts[ray]; i < firsts[ray + 1]; ++i) ray_indices[i] = I(ray);
}

INSTANTIATE_KERNEL("ray_march_write_int", ray_march_write, int)
INSTANTIATE_KERNEL("ray_march_write_long", ray_march_write, long)

// Grid: Flat, the bytes of all levels.
kernel void pack_occupancy(device const float* densities [[buffer(0)]],
                           device const float* threshold [[buffer(1)]],
                           device uchar* occupancy [[buffer(2)]],
                           constant PackOccupancyParams& params [[buffer(3)]],
                           uint2 position [[thread_position_in_grid]],
                           uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_levels * params.bytes_per_level) return;
  const ulong level = i / params.bytes_per_level, first = (i % params.bytes_per_level) * 8;
  const ulong n = min(ulong(8), params.n_cells - first);
  uint byte = 0;
  for (ulong j = 0; j < n; ++j) {
    byte |= densities[level * params.n_cells + first + j] > threshold[0] ? 1u << j : 0u;
  }
  occupancy[i] = uchar(byte);
}
