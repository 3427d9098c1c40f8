// VolumeRenderGrad and RenderWeightsGrad.
//
// With h_i the derivative of the loss with respect to w_i (through rgb, depth and the weights
// themselves), q_i that with respect to T_i, and x_i the optical thickness:
//   d loss / d x_i = T_{i+1} h_i - sum over j > i of (w_j h_j + T_j q_j)
//                    + T_end (d loss / d opacity - d loss / d rgb . background)
// The sum runs backwards, so that nothing cancels. A thread per ray, in order: the same on every
// run.

#include <metal_stdlib>

#include "kernels/msl/exp_log.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide_float.h"
#include "kernels/rays/ray_layout.h"
#include "kernels/volume_render/volume_render_params.h"

using namespace metal;

// Where the samples of a ray stop to count, and the sums up to there.
struct RayPrefix {
  uint n_live;
  uint median;
  float live_thickness;
};

// Forwards: the thickness up to each sample's end goes to `passed`, as far as it is needed.
template <typename T>
inline RayPrefix sum_thickness(uint count, float max_thickness, bool whole_ray,
                               device const T* sigmas, device const float* t_starts,
                               device const float* t_ends, device float* passed) {
  RayPrefix prefix;
  prefix.n_live = count;
  prefix.median = count - 1;
  prefix.live_thickness = 0.0f;
  WideFloat sum = wide(0.0f);
  bool stopped = false, median_found = false;
  for (uint i = 0; i < count; ++i) {
    if (!stopped && sum.high > max_thickness) {
      stopped = true;
      prefix.n_live = i;
      if (!whole_ray) break;
    }
    sum = wide_add(sum, float(sigmas[i]) * (t_ends[i] - t_starts[i]));
    passed[i] = sum.high;
    if (stopped) continue;
    prefix.live_thickness = sum.high;
    if (!median_found && wide_at_least(sum, VOLUME_RENDER_LN2)) {
      median_found = true;
      prefix.median = i;
    }
  }
  return prefix;
}

// Grid: rays.
template <typename T>
kernel void volume_render_grad(
    device const T* sigmas [[buffer(0)]], device const T* rgbs [[buffer(1)]],
    device const float* t_starts [[buffer(2)]], device const float* t_ends [[buffer(3)]],
    device const RaySpan* spans [[buffer(4)]], device const float* background [[buffer(5)]],
    device const float* from_rgb [[buffer(6)]], device const float* from_opacity [[buffer(7)]],
    device const float* from_depth [[buffer(8)]], device const float* from_median [[buffer(9)]],
    device const float* from_weights [[buffer(10)]],
    device const float* from_transmittance [[buffer(11)]], device T* to_sigmas [[buffer(12)]],
    device T* to_rgbs [[buffer(13)]], device float* to_starts [[buffer(14)]],
    device float* to_ends [[buffer(15)]], device float* passed [[buffer(16)]],
    device float* behind [[buffer(17)]], constant RayLayout& layout [[buffer(18)]],
    constant VolumeRenderParams& params [[buffer(19)]], uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  const uint count = span.count, n_channels = params.n_channels, present = params.present;
  const bool has_rgb = (present & VOLUME_RENDER_FROM_RGB) != 0;
  const bool has_weights = (present & VOLUME_RENDER_FROM_WEIGHTS) != 0;
  const bool has_transmittance = (present & VOLUME_RENDER_FROM_TRANSMITTANCE) != 0;
  const bool t_gradients = (present & VOLUME_RENDER_T_GRADIENTS) != 0;
  sigmas += span.start;
  t_starts += span.start;
  t_ends += span.start;
  passed += span.start;
  to_sigmas += span.start;
  const RayPrefix prefix = sum_thickness(count, params.max_thickness, has_transmittance, sigmas,
                                         t_starts, t_ends, passed);
  const uint n_used = has_transmittance ? count : prefix.n_live;

  const ulong first_channel = ulong(ray) * n_channels;
  const float depth = (present & VOLUME_RENDER_FROM_DEPTH) != 0 ? from_depth[ray] : 0.0f;
  WideFloat suffix = wide(0.0f);
  if ((present & VOLUME_RENDER_COLOURS) != 0) {
    const float end = precise::exp(-prefix.live_thickness);
    WideFloat light = wide(0.0f);
    if ((present & VOLUME_RENDER_BACKGROUND) != 0) {
      for (uint c = 0; c < n_channels; ++c) {
        const float g = has_rgb ? from_rgb[first_channel + c] : 0.0f;
        light =
            wide_add(light, wide_product(g, background[ulong(ray) * params.background_stride + c]));
      }
    }
    if ((present & VOLUME_RENDER_FROM_OPACITY) != 0) light = wide_add(light, -from_opacity[ray]);
    suffix = wide_multiply(light, end);
    behind[ray] = end;
  }

  for (uint i = n_used; i < count; ++i) {
    const ulong sample = span.start + i;
    to_sigmas[i] = T(0.0f);
    for (uint c = 0; c < n_channels; ++c) to_rgbs[sample * n_channels + c] = T(0.0f);
    if (t_gradients) to_starts[sample] = to_ends[sample] = 0.0f;
  }
  float after = n_used > 0 ? precise::exp(-passed[n_used - 1]) : 0.0f;
  for (uint i = n_used; i-- > 0;) {
    const ulong sample = span.start + i;
    const bool live = i < prefix.n_live;
    const float before = i > 0 ? precise::exp(-passed[i - 1]) : 1.0f;
    const float sigma = float(sigmas[i]), length = t_ends[i] - t_starts[i];
    const float weight = live ? -precise_expm1(-(sigma * length)) * before : 0.0f;
    float h = 0.0f;
    if (live) {
      h = (has_weights ? from_weights[sample] : 0.0f) + depth * 0.5f * (t_starts[i] + t_ends[i]);
    }
    float dot = 0.0f;
    for (uint c = 0; c < n_channels; ++c) {
      const ulong at = sample * n_channels + c;
      const float g = has_rgb ? from_rgb[first_channel + c] : 0.0f;
      if (live) dot += float(rgbs[at]) * g;
      to_rgbs[at] = T(live ? weight * g : 0.0f);
    }
    h += dot;

    const float slope = wide_add(wide_product(after, h), wide_negate(suffix)).high;
    suffix = wide_add(suffix, wide_product(weight, h));
    if (has_transmittance) {
      suffix = wide_add(suffix, wide_product(before, from_transmittance[sample]));
    }
    to_sigmas[i] = T(slope * length);
    if (t_gradients) {
      const float along = slope * sigma, middle = live ? 0.5f * depth * weight : 0.0f;
      to_starts[sample] = middle - along;
      to_ends[sample] = middle + along;
    }
    after = before;
  }
  if (t_gradients && count > 0) {
    const ulong sample = span.start + prefix.median;
    const float g = (present & VOLUME_RENDER_FROM_MEDIAN) != 0 ? 0.5f * from_median[ray] : 0.0f;
    to_starts[sample] += g;
    to_ends[sample] += g;
  }
}

// d loss / d background = T_end d loss / d rgb, with one background a ray.  Grid: channels x rays.
kernel void volume_render_background_grad(device const float* behind [[buffer(0)]],
                                          device const float* from_rgb [[buffer(1)]],
                                          device float* to_background [[buffer(2)]],
                                          constant uint& n_channels [[buffer(3)]],
                                          uint2 thread_at [[thread_position_in_grid]]) {
  const ulong at = ulong(thread_at.y) * n_channels + thread_at.x;
  to_background[at] = behind[thread_at.y] * from_rgb[at];
}

// With one background for all rays: their sum, in two steps of a fixed order.  Grid: channels x
// parts of VOLUME_RENDER_RAYS_PER_SUM rays.
kernel void volume_render_background_parts(device const float* behind [[buffer(0)]],
                                           device const float* from_rgb [[buffer(1)]],
                                           device WideFloat* parts [[buffer(2)]],
                                           constant uint& n_channels [[buffer(3)]],
                                           constant uint& n_rays [[buffer(4)]],
                                           uint2 thread_at [[thread_position_in_grid]]) {
  const uint first = thread_at.y * VOLUME_RENDER_RAYS_PER_SUM;
  const uint n = min(n_rays - first, VOLUME_RENDER_RAYS_PER_SUM);
  WideFloat sum = wide(0.0f);
  for (uint ray = first; ray < first + n; ++ray) {
    sum = wide_add(sum, wide_product(behind[ray], from_rgb[ulong(ray) * n_channels + thread_at.x]));
  }
  parts[ulong(thread_at.y) * n_channels + thread_at.x] = sum;
}

// Grid: channels.
kernel void volume_render_background_total(device const WideFloat* parts [[buffer(0)]],
                                           device float* to_background [[buffer(1)]],
                                           constant uint& n_channels [[buffer(2)]],
                                           constant uint& n_parts [[buffer(3)]],
                                           uint channel [[thread_position_in_grid]]) {
  WideFloat sum = wide(0.0f);
  for (uint p = 0; p < n_parts; ++p) sum = wide_add(sum, parts[ulong(p) * n_channels + channel]);
  to_background[channel] = sum.high;
}

INSTANTIATE_KERNEL("volume_render_grad_float", volume_render_grad, float)
INSTANTIATE_KERNEL("volume_render_grad_half", volume_render_grad, half)
IF_BFLOAT(INSTANTIATE_KERNEL("volume_render_grad_bfloat", volume_render_grad, bfloat))
