// VolumeRender and RenderWeights: weights and sums of one ray, then its colours.
//
// A thread per ray, in order, so results are the same on every run. Running sums in 48 bits:
// 100,000 samples must not round 100,000 times.

#include <metal_stdlib>

#include "kernels/msl/exp_log.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide_float.h"
#include "kernels/rays/ray_layout.h"
#include "kernels/volume_render/volume_render_params.h"

using namespace metal;

// The colours' view of a ray: up to where samples count, and the light from behind.
struct RayEnd {
  uint n_live;
  float behind;
};

// Grid: rays.
template <typename T>
kernel void volume_render_rays(
    device const T* sigmas [[buffer(0)]], device const float* t_starts [[buffer(1)]],
    device const float* t_ends [[buffer(2)]], device const RaySpan* spans [[buffer(3)]],
    device float* weights [[buffer(4)]], device float* opacity [[buffer(5)]],
    device float* depth [[buffer(6)]], device float* depth_median [[buffer(7)]],
    device RayEnd* ends [[buffer(8)]], constant RayLayout& layout [[buffer(9)]],
    constant VolumeRenderParams& params [[buffer(10)]], uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  const uint count = span.count;
  sigmas += span.start;
  t_starts += span.start;
  t_ends += span.start;
  weights += span.start;

  WideFloat passed = wide(0.0f), twice_depth = wide(0.0f);
  // The middle of the last sample, unless half of the light is absorbed before.
  float median = count > 0 ? 0.5f * (t_starts[count - 1] + t_ends[count - 1]) : 0.0f;
  bool median_found = false;
  uint n_live = 0;
  for (; n_live < count; ++n_live) {
    const uint i = n_live;
    if (passed.high > params.max_thickness) break;
    const float thickness = float(sigmas[i]) * (t_ends[i] - t_starts[i]);
    const float weight = precise::exp(-passed.high) * -precise_expm1(-thickness);
    weights[i] = weight;
    passed = wide_add(passed, thickness);
    const float twice_middle = t_starts[i] + t_ends[i];
    twice_depth = wide_add(twice_depth, weight * twice_middle);
    if (!median_found && wide_at_least(passed, VOLUME_RENDER_LN2)) {
      median_found = true;
      median = 0.5f * twice_middle;
    }
  }
  for (uint i = n_live; i < count; ++i) weights[i] = 0.0f;

  opacity[ray] = -precise_expm1(-passed.high);
  depth[ray] = 0.5f * twice_depth.high;
  depth_median[ray] = median;
  ends[ray].n_live = n_live;
  ends[ray].behind = precise::exp(-passed.high);
}

// rgb = sum w_i c_i + T_end background.  Grid: channels x rays.
template <typename T>
kernel void volume_render_colours(
    device const T* rgbs [[buffer(0)]], device const float* weights [[buffer(1)]],
    device const float* background [[buffer(2)]], device const RayEnd* ends [[buffer(3)]],
    device const RaySpan* spans [[buffer(4)]], device float* rgb [[buffer(5)]],
    constant RayLayout& layout [[buffer(6)]], constant VolumeRenderParams& params [[buffer(7)]],
    uint2 thread_at [[thread_position_in_grid]]) {
  const uint channel = thread_at.x, ray = thread_at.y;
  const RaySpan span = ray_span(layout, spans, ray);
  const RayEnd end = ends[ray];
  WideFloat sum = wide(0.0f);
  for (uint i = 0; i < end.n_live; ++i) {
    const ulong sample = span.start + i;
    sum = wide_add(sum, weights[sample] * float(rgbs[sample * params.n_channels + channel]));
  }
  if ((params.present & VOLUME_RENDER_BACKGROUND) != 0) {
    sum = wide_add(sum, end.behind * background[ulong(ray) * params.background_stride + channel]);
  }
  rgb[ulong(ray) * params.n_channels + channel] = sum.high;
}

// Grid: rays. The transmittance goes on behind an early stop.
template <typename T>
kernel void render_weights(
    device const T* sigmas [[buffer(0)]], device const float* t_starts [[buffer(1)]],
    device const float* t_ends [[buffer(2)]], device const RaySpan* spans [[buffer(3)]],
    device float* weights [[buffer(4)]], device float* transmittance [[buffer(5)]],
    constant RayLayout& layout [[buffer(6)]], constant VolumeRenderParams& params [[buffer(7)]],
    uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  WideFloat passed = wide(0.0f);
  bool stopped = false;
  for (ulong i = span.start; i < span.start + span.count; ++i) {
    stopped = stopped || passed.high > params.max_thickness;
    const float thickness = float(sigmas[i]) * (t_ends[i] - t_starts[i]);
    const float before = precise::exp(-passed.high);
    weights[i] = stopped ? 0.0f : before * -precise_expm1(-thickness);
    transmittance[i] = before;
    passed = wide_add(passed, thickness);
  }
}

#define INSTANTIATE_TYPE(T)                                                 \
  INSTANTIATE_KERNEL("volume_render_rays_" #T, volume_render_rays, T)       \
  INSTANTIATE_KERNEL("volume_render_colours_" #T, volume_render_colours, T) \
  INSTANTIATE_KERNEL("render_weights_" #T, render_weights, T)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
