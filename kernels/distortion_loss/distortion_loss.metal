// DistortionLoss and ScaleRays. The formulas are those of distortion_loss_simd.cc.
//
// A thread per ray, in order, so results are the same on every run. Running sums in 48 bits, and
// middles as exact differences: neighbouring samples far from the origin are still told apart.

#include <metal_stdlib>

#include "kernels/msl/wide_float.h"
#include "kernels/rays/ray_layout.h"

using namespace metal;

// From the middle of sample a to that of sample b.
inline WideFloat between_middles(device const float* t_starts, device const float* t_ends, uint a,
                                 uint b) {
  const WideFloat twice =
      wide_add(wide_sum(t_starts[b], -t_starts[a]), wide_sum(t_ends[b], -t_ends[a]));
  return wide_multiply(twice, 0.5f);
}

// Grid: rays. A ray whose samples are not in order has no distortion: NaN.
kernel void distortion_loss(
    device const float* weights [[buffer(0)]], device const float* t_starts [[buffer(1)]],
    device const float* t_ends [[buffer(2)]], device const RaySpan* spans [[buffer(3)]],
    device float* loss [[buffer(4)]], device float* slope [[buffer(5)]],
    device float* starts_slope [[buffer(6)]], device float* ends_slope [[buffer(7)]],
    constant RayLayout& layout [[buffer(8)]], constant uint& t_gradients [[buffer(9)]],
    uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  const uint count = span.count;
  weights += span.start;
  t_starts += span.start;
  t_ends += span.start;
  slope += span.start;
  if (t_gradients != 0) {
    starts_slope += span.start;
    ends_slope += span.start;
  }

  WideFloat total = wide(0.0f), sum = wide(0.0f), reach = wide(0.0f);
  bool in_order = true;
  for (uint i = 0; i < count; ++i) {
    const WideFloat gap = between_middles(t_starts, t_ends, i > 0 ? i - 1 : 0, i);
    in_order = in_order && !(gap.high < 0.0f);
    reach = wide_add(reach, wide_multiply(sum, gap));
    const float w = weights[i], length = t_ends[i] - t_starts[i];
    if (t_gradients != 0) starts_slope[i] = sum.high;
    sum = wide_add(sum, w);
    const WideFloat inner = wide_multiply(wide_product(w, length), 1.0f / 3.0f);
    const WideFloat outer = wide_multiply(reach, 2.0f);
    total = wide_add(total, wide_multiply(wide_add(outer, inner), w));
    slope[i] = reach.high;
  }
  loss[ray] = in_order ? total.high : NAN;

  sum = reach = wide(0.0f);
  for (uint i = count; i-- > 0;) {
    const WideFloat gap = between_middles(t_starts, t_ends, i, i + 1 < count ? i + 1 : i);
    reach = wide_add(reach, wide_multiply(sum, gap));
    const float w = weights[i], length = t_ends[i] - t_starts[i];
    slope[i] = in_order ? 2.0f * (slope[i] + reach.high + w * length / 3.0f) : NAN;
    if (t_gradients != 0) {
      const float along = w * (starts_slope[i] - sum.high), wider = w * w / 3.0f;
      starts_slope[i] = in_order ? along - wider : NAN;
      ends_slope[i] = in_order ? along + wider : NAN;
    }
    sum = wide_add(sum, w);
  }
}

// Grid: rays.
kernel void scale_rays(device const float* d_loss [[buffer(0)]],
                       device const float* slope [[buffer(1)]],
                       device const RaySpan* spans [[buffer(2)]],
                       device float* gradient [[buffer(3)]],
                       constant RayLayout& layout [[buffer(4)]],
                       uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  const float factor = d_loss[ray];
  for (ulong i = span.start; i < span.start + span.count; ++i) gradient[i] = factor * slope[i];
}
