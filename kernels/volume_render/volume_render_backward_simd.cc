// VolumeRenderGrad and RenderWeightsGrad on the CPU: a ray is done by one thread.
//
// With h_i the derivative of the loss with respect to w_i (through rgb, depth and the weights
// themselves), q_i that with respect to T_i, and x_i the optical thickness:
//   d loss / d x_i = T_{i+1} h_i - sum over j > i of (w_j h_j + T_j q_j)
//                    + T_end (d loss / d opacity - d loss / d rgb . background)
// The sum runs backwards, so that nothing cancels. w and T are made anew from sigma, which takes
// less memory traffic than to keep them.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/volume_render/volume_render_params.h"
#include "kernels/volume_render/volume_render_rays.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/volume_render/volume_render_backward_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;

// Cycles that a sample takes, roughly.
constexpr int64_t kCycles = 30;

constexpr int64_t kMostLanes = 64;

// Gradients of a loss with respect to one ray's results; null where there is none.
struct RayGradients {
  const float* rgb;  // [n_channels]
  float opacity;
  float depth;
  float depth_median;
  const float* weights;        // [samples] of all rays
  const float* transmittance;  // [samples] of all rays
};

// Gradients of the inputs, each [samples, ...] of all rays; null where none is wanted.
struct SampleGradients {
  MutableFloatArray sigmas;
  MutableFloatArray rgbs;
  float* t_starts;
  float* t_ends;
};

// h_i += d loss / d rgb . c_i, and the gradient of c_i: w_i d loss / d rgb.
HWY_INLINE void ThroughColours(const float* HWY_RESTRICT rgbs, const float* HWY_RESTRICT from,
                               const float* HWY_RESTRICT weights, int64_t n, int64_t n_channels,
                               float* HWY_RESTRICT h, float* HWY_RESTRICT to) {
  int64_t i = 0;
  if (n_channels == 3) {
    const DF df;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
    const auto fr = hn::Set(df, from[0]), fg = hn::Set(df, from[1]), fb = hn::Set(df, from[2]);
    for (; i + lanes <= n; i += lanes) {
      hn::Vec<DF> r, g, b;
      hn::LoadInterleaved3(df, rgbs + 3 * i, r, g, b);
      const auto w = hn::LoadU(df, weights + i);
      const auto dot = hn::MulAdd(r, fr, hn::MulAdd(g, fg, hn::Mul(b, fb)));
      hn::StoreU(hn::Add(hn::LoadU(df, h + i), dot), df, h + i);
      hn::StoreInterleaved3(hn::Mul(w, fr), hn::Mul(w, fg), hn::Mul(w, fb), df, to + 3 * i);
    }
  }
  for (; i < n; ++i) {
    float dot = 0.0f;
    for (int64_t c = 0; c < n_channels; ++c) {
      dot += rgbs[i * n_channels + c] * from[c];
      to[i * n_channels + c] = weights[i] * from[c];
    }
    h[i] += dot;
  }
}

// Returns T_end, which is the derivative of rgb with respect to the background.
float DifferentiateRay(const RenderInputs& in, int64_t start, int64_t count,
                       const float* background, const RayGradients& from, const SampleGradients& to,
                       RayScratch* scratch) {
  const DF df;
  const int64_t n_channels = in.n_channels;
  const int64_t wide = count + kMostLanes;
  if (static_cast<int64_t>(scratch->ray.size()) < 4 * wide) scratch->ray.resize(4 * wide);
  const int64_t narrow_size = kRayPiece * std::max<int64_t>(1, n_channels);
  scratch->narrow.resize(2 * narrow_size);
  float* const narrow = scratch->narrow.data();
  float* const narrow_out = narrow + narrow_size;
  float* const thickness = scratch->ray.data();
  float* const passed = thickness + wide;  // including the sample itself
  float* const h = passed + wide;
  float* const weights = h + wide;
  const float* const t_starts = in.t_starts + start;
  const float* const t_ends = in.t_ends + start;

  // Samples up to the stop; those behind it matter only for the transmittance.
  double sum = 0.0, sum_live = 0.0;
  int64_t n_live = count, median = -1;
  for (int64_t done = 0; done < count; done += kRayPiece) {
    const int64_t n = std::min(kRayPiece, count - done);
    const float* const sigmas = in.sigmas.Read(start + done, n, narrow);
    for (int64_t i = 0; i < n; ++i) {
      thickness[done + i] = sigmas[i] * (t_ends[done + i] - t_starts[done + i]);
    }
    for (int64_t i = done; i < done + n; ++i) {
      if (n_live == count && static_cast<float>(sum) > in.max_thickness) n_live = i;
      sum += thickness[i];
      if (n_live == count) sum_live = sum;
      if (median < 0 && n_live == count && sum >= VOLUME_RENDER_LN2) median = i;
      passed[i] = static_cast<float>(sum);
    }
    if (n_live < count && from.transmittance == nullptr) break;
  }
  if (median < 0) median = count - 1;
  const int64_t n_used = from.transmittance == nullptr ? n_live : count;
  std::fill_n(thickness + n_used, kMostLanes, 0.0f);
  std::fill_n(passed + n_used, kMostLanes, 0.0f);

  // Weights, and in `passed` from now on the transmittance behind each sample.
  for (int64_t i = 0; i < n_used; i += hn::Lanes(df)) {
    const auto x = hn::LoadU(df, thickness + i);
    const auto after = hn::LoadU(df, passed + i);
    // T_i (1 - e^-x) = T_{i+1} (e^x - 1), but the latter overflows: T_i from the prefix sum
    // instead.
    const auto alpha = hn::Neg(SafeExpm1(df, hn::Neg(x)));
    hn::StoreU(alpha, df, weights + i);
    hn::StoreU(SafeExp(df, hn::Neg(after)), df, passed + i);
  }
  // From the end, as each needs its left neighbour's value: T_i = T_after_{i-1}.
  for (int64_t i = n_live; i < n_used; ++i) weights[i] = 0.0f;
  for (int64_t i = n_live - 1; i > 0; --i) weights[i] *= passed[i - 1];

  for (int64_t i = 0; i < n_live; ++i) {
    h[i] = from.weights == nullptr ? 0.0f : from.weights[start + i];
    h[i] += from.depth * 0.5f * (t_starts[i] + t_ends[i]);
  }
  std::fill_n(h + n_live, n_used - n_live, 0.0f);
  double beyond = 0.0;  // - T_end (d loss / d opacity - d loss / d rgb . background)
  const float behind = static_cast<float>(std::exp(-sum_live));
  if (from.rgb != nullptr) {
    double light = 0.0;
    for (int64_t c = 0; c < n_channels && background != nullptr; ++c) {
      light += static_cast<double>(from.rgb[c]) * background[c];
    }
    beyond = behind * (light - from.opacity);
    for (int64_t done = 0; done < count; done += kRayPiece) {
      const int64_t n = std::min(kRayPiece, count - done);
      const int64_t live = std::clamp<int64_t>(n_live - done, 0, n);
      const int64_t at = (start + done) * n_channels;
      float* const piece = to.rgbs.Piece(at, narrow_out);
      ThroughColours(in.rgbs.Read(at, live * n_channels, narrow), from.rgb, weights + done, live,
                     n_channels, h + done, piece);
      std::fill_n(piece + live * n_channels, (n - live) * n_channels, 0.0f);
      to.rgbs.Store(at, n * n_channels, piece);
    }
  }

  // h becomes d loss / d x.
  double suffix = beyond;
  for (int64_t i = n_used - 1; i >= 0; --i) {
    const float h_i = h[i];
    h[i] = static_cast<float>(static_cast<double>(passed[i]) * h_i - suffix);
    suffix += static_cast<double>(weights[i]) * h_i;
    if (from.transmittance != nullptr) {
      suffix += (i == 0 ? 1.0 : passed[i - 1]) * static_cast<double>(from.transmittance[start + i]);
    }
  }

  for (int64_t done = 0; done < count; done += kRayPiece) {
    const int64_t n = std::min(kRayPiece, count - done);
    const int64_t used = std::clamp<int64_t>(n_used - done, 0, n);
    const int64_t at = start + done;
    float* const piece = to.sigmas.Piece(at, narrow_out);
    for (int64_t i = 0; i < used; ++i) {
      piece[i] = h[done + i] * (t_ends[done + i] - t_starts[done + i]);
    }
    std::fill_n(piece + used, n - used, 0.0f);
    to.sigmas.Store(at, n, piece);
    if (to.t_starts == nullptr) continue;
    const float* const sigmas = in.sigmas.Read(at, used, narrow);
    for (int64_t i = 0; i < n; ++i) {
      const float length = i < used ? h[done + i] * sigmas[i] : 0.0f;
      const float middle = done + i < n_live ? 0.5f * from.depth * weights[done + i] : 0.0f;
      to.t_starts[at + i] = middle - length;
      to.t_ends[at + i] = middle + length;
    }
  }
  if (to.t_starts != nullptr && count > 0) {
    to.t_starts[start + median] += 0.5f * from.depth_median;
    to.t_ends[start + median] += 0.5f * from.depth_median;
  }
  return behind;
}

// Times are outputs `first_time` and the next one.
SampleGradients Gradients(const CpuCall& call, int first_time) {
  SampleGradients to = {};
  to.sigmas = call.float_out(0);
  if (!call.Bool("t_gradients")) return to;
  to.t_starts = call.out<float>(first_time);
  to.t_ends = call.out<float>(first_time + 1);
  return to;
}

void VolumeRenderGrad(CpuCall& call) {
  const RenderInputs in(call);
  const int64_t n_channels = in.n_channels, n_rays = call.Size("rays");
  SampleGradients to = Gradients(call, 3);
  to.rgbs = call.float_out(1);
  const float* const from_rgb = FloatsOrNull(call, 0);
  const float* const from_opacity = FloatsOrNull(call, 1);
  const float* const from_depth = FloatsOrNull(call, 2);
  const float* const from_median = FloatsOrNull(call, 3);
  const float* const light = FloatsOrNull(call, 10);
  const int64_t light_stride = call.in_shapes[10].rank() == 2 ? n_channels : 0;
  // Not empty: a null pointer stands for "no colours", and there may be no channels.
  const std::vector<float> no_rgb(n_channels + 1, 0.0f);
  std::vector<float> behind(n_rays);
  ForRays(call, kCycles, {0, 1, 3, 4}, [&](int64_t r, const RayRange& range, RayScratch* scratch) {
    RayGradients from = {};
    from.rgb = from_rgb == nullptr ? no_rgb.data() : from_rgb + r * n_channels;
    from.opacity = from_opacity == nullptr ? 0.0f : from_opacity[r];
    from.depth = from_depth == nullptr ? 0.0f : from_depth[r];
    from.depth_median = from_median == nullptr ? 0.0f : from_median[r];
    from.weights = FloatsOrNull(call, 4);
    behind[r] =
        DifferentiateRay(in, range.start, range.count,
                         light == nullptr ? nullptr : light + r * light_stride, from, to, scratch);
  });

  // d loss / d background = T_end d loss / d rgb; one background for all rays: their sum, in order.
  if (light == nullptr || !call.shapes.ok()) return;
  float* const out = call.out<float>(2);
  std::vector<double> sum(light_stride == 0 ? n_channels : 0);
  for (int64_t r = 0; r < n_rays; ++r) {
    for (int64_t c = 0; c < n_channels; ++c) {
      const float g = from_rgb == nullptr ? 0.0f : from_rgb[r * n_channels + c];
      if (light_stride == 0) {
        sum[c] += static_cast<double>(behind[r]) * g;
      } else {
        out[r * n_channels + c] = behind[r] * g;
      }
    }
  }
  for (size_t c = 0; c < sum.size(); ++c) out[c] = static_cast<float>(sum[c]);
}

void RenderWeightsGrad(CpuCall& call) {
  const RenderInputs in(call);
  const SampleGradients to = Gradients(call, 1);
  RayGradients from = {};
  from.weights = FloatsOrNull(call, 0);
  from.transmittance = FloatsOrNull(call, 1);
  ForRays(call, kCycles, {0, 1, 2}, [&](int64_t, const RayRange& ray, RayScratch* scratch) {
    DifferentiateRay(in, ray.start, ray.count, nullptr, from, to, scratch);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("VolumeRenderGrad", VolumeRenderGrad);
SIMD_KERNEL("RenderWeightsGrad", RenderWeightsGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
