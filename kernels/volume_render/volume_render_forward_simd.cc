// VolumeRender and RenderWeights on the CPU: rays are shared out on threads. A ray is done by one of
// them, so results do not depend on their number.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/volume_render/volume_render_params.h"
#include "kernels/volume_render/volume_render_rays.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/volume_render/volume_render_forward_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;

// Cycles that a sample takes, roughly: two exponentials in vectors, two serial additions.
constexpr int64_t kCycles = 15;

// One ray's results; null where none is wanted.
struct RenderedRay {
  const float* background;  // [n_channels], or null
  float* rgb;               // [n_channels]
  float* opacity;
  float* depth;  // sum of w_i (t_start_i + t_end_i) / 2
  float*
      depth_median;  // middle of the first sample with opacity >= 1/2 behind it, else of the last
};

// The piece's weights and transmittances from its optical thicknesses, in buffers of whole vectors.
HWY_INLINE void WeighPiece(const float* HWY_RESTRICT thickness, const float* HWY_RESTRICT before,
                           int64_t n, float* HWY_RESTRICT weights, float* HWY_RESTRICT trans) {
  const DF df;
  for (int64_t i = 0; i < n; i += hn::Lanes(df)) {
    const auto t = SafeExp(df, hn::Neg(hn::Load(df, before + i)));
    const auto alpha = hn::Neg(SafeExpm1(df, hn::Neg(hn::Load(df, thickness + i))));
    hn::Store(t, df, trans + i);
    hn::Store(hn::Mul(t, alpha), df, weights + i);
  }
}

// rgb += sum of w_i c_i
HWY_INLINE void AddColours(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT rgbs,
                           int64_t n, int64_t n_channels, double* HWY_RESTRICT rgb) {
  int64_t i = 0;
  if (n_channels == 3) {
    const DF df;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
    if (n >= lanes) {
      auto r = hn::Zero(df), g = r, b = r;
      for (; i + lanes <= n; i += lanes) {
        const auto w = hn::Load(df, weights + i);
        hn::Vec<DF> cr, cg, cb;
        hn::LoadInterleaved3(df, rgbs + 3 * i, cr, cg, cb);
        r = hn::MulAdd(w, cr, r);
        g = hn::MulAdd(w, cg, g);
        b = hn::MulAdd(w, cb, b);
      }
      rgb[0] += hn::GetLane(hn::SumOfLanes(df, r));
      rgb[1] += hn::GetLane(hn::SumOfLanes(df, g));
      rgb[2] += hn::GetLane(hn::SumOfLanes(df, b));
    }
  }
  for (; i < n; ++i) {
    for (int64_t c = 0; c < n_channels; ++c) rgb[c] += weights[i] * rgbs[i * n_channels + c];
  }
}

HWY_INLINE double SumOfDepths(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT t_starts,
                              const float* HWY_RESTRICT t_ends, int64_t n) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  auto sum = hn::Zero(df);
  for (; i + lanes <= n; i += lanes) {
    const auto twice = hn::Add(hn::LoadU(df, t_starts + i), hn::LoadU(df, t_ends + i));
    sum = hn::MulAdd(hn::Load(df, weights + i), twice, sum);
  }
  double total = hn::GetLane(hn::SumOfLanes(df, sum));
  for (; i < n; ++i) total += weights[i] * (t_starts[i] + t_ends[i]);
  return 0.5 * total;
}

// Samples [start, start + count) -> weights (and transmittance, if not null) of these samples, and
// the ray's sums, if `ray` is not null. Each sample array begins at sample 0 of all rays.
void RenderRay(const RenderInputs& in, int64_t start, int64_t count, float* weights,
               float* transmittance, const RenderedRay* ray, RayScratch* scratch) {
  const int64_t n_channels = in.n_channels;
  HWY_ALIGN float thickness[kRayPiece];
  HWY_ALIGN float before[kRayPiece];
  HWY_ALIGN float piece_weights[kRayPiece];
  HWY_ALIGN float trans[kRayPiece];
  scratch->narrow.resize(kRayPiece * std::max<int64_t>(1, n_channels));
  float* const narrow = scratch->narrow.data();
  double few_channels[4];
  std::vector<double> many_channels(n_channels > 4 ? n_channels : 0);
  double* const rgb = n_channels > 4 ? many_channels.data() : few_channels;
  std::fill_n(rgb, n_channels, 0.0);

  // In double: 100,000 samples must not round 100,000 times.
  double passed = 0.0, depth = 0.0;
  float median = 0.0f;
  bool median_found = false, stopped = false;
  for (int64_t done = 0; done < count; done += kRayPiece) {
    const int64_t n = std::min(kRayPiece, count - done);
    const int64_t first = start + done;
    const float* const t_starts = in.t_starts + first;
    const float* const t_ends = in.t_ends + first;
    if (stopped && transmittance == nullptr) {
      std::fill_n(weights + first, n, 0.0f);
      if (!median_found) median = 0.5f * (t_starts[n - 1] + t_ends[n - 1]);
      continue;
    }
    const float* const sigmas = in.sigmas.Read(first, n, narrow);
    for (int64_t i = 0; i < n; ++i) thickness[i] = sigmas[i] * (t_ends[i] - t_starts[i]);
    int64_t n_live = stopped ? 0 : n;
    for (int64_t i = 0; i < n; ++i) {
      before[i] = static_cast<float>(passed);
      if (before[i] > in.max_thickness && !stopped) {
        stopped = true;
        n_live = i;
        if (transmittance == nullptr) break;
      }
      passed += thickness[i];
      if (!median_found && !stopped && passed >= VOLUME_RENDER_LN2) {
        median_found = true;
        median = 0.5f * (t_starts[i] + t_ends[i]);
      }
    }
    if (!median_found) median = 0.5f * (t_starts[n - 1] + t_ends[n - 1]);

    const int64_t n_weighed = transmittance == nullptr ? n_live : n;
    // Room for reads of a last, partial vector beyond the values.
    for (int64_t i = n_weighed; i < kRayPiece && i < n_weighed + 64; ++i) {
      thickness[i] = before[i] = 0.0f;
    }
    WeighPiece(thickness, before, n_weighed, piece_weights, trans);
    std::copy_n(piece_weights, n_live, weights + first);
    std::fill_n(weights + first + n_live, n - n_live, 0.0f);
    if (transmittance != nullptr) std::copy_n(trans, n, transmittance + first);
    if (ray == nullptr) continue;
    AddColours(piece_weights, in.rgbs.Read(first * n_channels, n_live * n_channels, narrow), n_live,
               n_channels, rgb);
    depth += SumOfDepths(piece_weights, t_starts, t_ends, n_live);
  }
  if (ray == nullptr) return;
  // Only with transmittances does `passed` go on behind the stop, and those have no sums.
  const double opacity = -std::expm1(-passed);
  const double behind = std::exp(-passed);
  for (int64_t c = 0; c < n_channels; ++c) {
    const double light = ray->background == nullptr ? 0.0 : behind * ray->background[c];
    ray->rgb[c] = static_cast<float>(rgb[c] + light);
  }
  *ray->opacity = static_cast<float>(opacity);
  *ray->depth = static_cast<float>(depth);
  *ray->depth_median = median;
}

void VolumeRender(CpuCall& call) {
  const RenderInputs in(call);
  const int64_t n_channels = in.n_channels;
  const float* const behind = FloatsOrNull(call, 5);
  const int64_t behind_stride = call.in_shapes[5].rank() == 2 ? n_channels : 0;
  ForRays(call, kCycles, {4}, [&](int64_t r, const RayRange& range, RayScratch* scratch) {
    const RenderedRay ray = {behind == nullptr ? nullptr : behind + r * behind_stride,
                             call.out<float>(0) + r * n_channels, call.out<float>(1) + r,
                             call.out<float>(2) + r, call.out<float>(3) + r};
    RenderRay(in, range.start, range.count, call.out<float>(4), nullptr, &ray, scratch);
  });
}

void RenderWeights(CpuCall& call) {
  const RenderInputs in(call);
  ForRays(call, kCycles, {0, 1}, [&](int64_t, const RayRange& ray, RayScratch* scratch) {
    RenderRay(in, ray.start, ray.count, call.out<float>(0), call.out<float>(1), nullptr, scratch);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("VolumeRender", VolumeRender);
SIMD_KERNEL("RenderWeights", RenderWeights);
}  // namespace metal_ops
#endif  // HWY_ONCE
