// Frequency encoding: sine and cosine of a vector of points at a time, written row by row.

#include "kernels/frequency_encode/frequency_encode_simd.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/frequency_encode/frequency_encode_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// a b - c with one rounding, on targets without the instruction too.
HWY_INLINE VF ExactMulSub(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a, b, c);
#else
  const DF df;
  HWY_ALIGN float lanes[3][hn::MaxLanes(df)];
  hn::Store(a, df, lanes[0]);
  hn::Store(b, df, lanes[1]);
  hn::Store(c, df, lanes[2]);
  for (size_t i = 0; i < hn::Lanes(df); ++i) {
    lanes[0][i] = std::fma(lanes[0][i], lanes[1][i], -lanes[2][i]);
  }
  return hn::Load(df, lanes[0]);
#endif
}

// A phase in turns, as a sum.
struct Turns {
  VF high, low;
};

HWY_INLINE Turns FirstTurns(const FrequencyEncodeParams& p, VF x) {
  const DF df;
  const VF high = hn::Mul(x, hn::Set(df, p.turns_high));
  const VF rest = ExactMulSub(x, hn::Set(df, p.turns_high), high);
  return {high, hn::MulAdd(x, hn::Set(df, p.turns_low), rest)};
}

HWY_INLINE Turns Twice(Turns u) { return {hn::Add(u.high, u.high), hn::Add(u.low, u.low)}; }

// sin and cos of 2 pi u: whole turns dropped, then quarters, then Taylor's series up to pi / 4,
// where the first term left out is below 2^-28.
HWY_INLINE void SinCos(Turns u, VF& sine, VF& cosine) {
  const DF df;
  VF r = hn::Add(hn::Sub(u.high, hn::Round(u.high)), u.low);
  r = hn::Sub(r, hn::Round(r));
  const VF quarters = hn::Round(hn::Mul(r, hn::Set(df, 4.0f)));  // -2 .. 2
  const VF t =
      hn::Mul(hn::NegMulAdd(quarters, hn::Set(df, 0.25f), r), hn::Set(df, 6.283185307179586f));
  const VF t2 = hn::Mul(t, t);
  VF s = hn::Set(df, 1.0f / 362880.0f);
  s = hn::MulAdd(s, t2, hn::Set(df, -1.0f / 5040.0f));
  s = hn::MulAdd(s, t2, hn::Set(df, 1.0f / 120.0f));
  s = hn::MulAdd(s, t2, hn::Set(df, -1.0f / 6.0f));
  s = hn::MulAdd(hn::Mul(s, t2), t, t);
  VF c = hn::Set(df, -1.0f / 3628800.0f);
  c = hn::MulAdd(c, t2, hn::Set(df, 1.0f / 40320.0f));
  c = hn::MulAdd(c, t2, hn::Set(df, -1.0f / 720.0f));
  c = hn::MulAdd(c, t2, hn::Set(df, 1.0f / 24.0f));
  c = hn::MulAdd(c, t2, hn::Set(df, -0.5f));
  c = hn::MulAdd(c, t2, hn::Set(df, 1.0f));
  // An odd number of quarters swaps them; two or more change the sign.
  const auto odd = hn::Eq(hn::Abs(quarters), hn::Set(df, 1.0f));
  const auto half = hn::Eq(hn::Abs(quarters), hn::Set(df, 2.0f));
  const auto back = hn::Eq(quarters, hn::Set(df, -1.0f));
  const auto on = hn::Eq(quarters, hn::Set(df, 1.0f));
  const VF swapped_s = hn::IfThenElse(odd, c, s), swapped_c = hn::IfThenElse(odd, s, c);
  sine = hn::IfThenElse(hn::Or(half, back), hn::Neg(swapped_s), swapped_s);
  cosine = hn::IfThenElse(hn::Or(half, on), hn::Neg(swapped_c), swapped_c);
}

// Dimension d of up to a vector of points.
HWY_INLINE VF LoadColumn(const float* inputs, int64_t n, int64_t n_dims, int64_t d) {
  const DF df;
  HWY_ALIGN float column[hn::MaxLanes(df)] = {};
  for (int64_t i = 0; i < n; ++i) column[i] = inputs[i * n_dims + d];
  return hn::Load(df, column);
}

HWY_INLINE void StoreColumn(VF values, int64_t n, int64_t width, float* to) {
  const DF df;
  HWY_ALIGN float column[hn::MaxLanes(df)];
  hn::Store(values, df, column);
  for (int64_t i = 0; i < n; ++i) to[i * width] = column[i];
}

void EncodeRange(const FrequencyEncodeParams& p, const float* inputs, int64_t begin, int64_t end,
                 const MutableFloatArray& outputs) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df)), n_dims = p.n_dims;
  const int64_t width = n_dims * (2 * p.n_frequencies + p.include_input);
  std::vector<float> rows(lanes * width);
  for (int64_t i = begin; i < end; i += lanes) {
    const int64_t n = std::min(lanes, end - i);
    float* const piece = outputs.Piece(i * width, rows.data());
    for (int64_t d = 0; d < n_dims; ++d) {
      const VF x = LoadColumn(inputs + i * n_dims, n, n_dims, d);
      float* to = piece + d;
      if (p.include_input) {
        StoreColumn(x, n, width, to);
        to += n_dims;
      }
      Turns u = FirstTurns(p, x);
      for (uint32_t k = 0; k < p.n_frequencies; ++k, u = Twice(u), to += 2 * n_dims) {
        VF sine, cosine;
        SinCos(u, sine, cosine);
        StoreColumn(sine, n, width, to);
        StoreColumn(cosine, n, width, to + n_dims);
      }
    }
    outputs.Store(i * width, n * width, piece);
  }
}

void DifferentiateRange(const FrequencyEncodeParams& p, const FloatArray& gradients,
                        const float* inputs, int64_t begin, int64_t end, float* to) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df)), n_dims = p.n_dims;
  const int64_t width = n_dims * (2 * p.n_frequencies + p.include_input);
  std::vector<float> rows(lanes * width);
  for (int64_t i = begin; i < end; i += lanes) {
    const int64_t n = std::min(lanes, end - i);
    const float* const piece = gradients.Read(i * width, n * width, rows.data());
    for (int64_t d = 0; d < n_dims; ++d) {
      const VF x = LoadColumn(inputs + i * n_dims, n, n_dims, d);
      const float* from = piece + d;
      VF sum = hn::Zero(df);
      if (p.include_input) {
        sum = LoadColumn(from, n, width, 0);
        from += n_dims;
      }
      Turns u = FirstTurns(p, x);
      VF slope = hn::Set(df, p.slope);
      for (uint32_t k = 0; k < p.n_frequencies; ++k, u = Twice(u), from += 2 * n_dims) {
        VF sine, cosine;
        SinCos(u, sine, cosine);
        const VF g_sine = LoadColumn(from, n, width, 0);
        const VF g_cosine = LoadColumn(from, n, width, n_dims);
        const VF along = hn::MulSub(g_sine, cosine, hn::Mul(g_cosine, sine));
        sum = hn::MulAdd(slope, along, sum);
        slope = hn::Add(slope, slope);
      }
      StoreColumn(sum, n, n_dims, to + i * n_dims + d);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(EncodeRange);
HWY_EXPORT(DifferentiateRange);

void EncodeFrequencies(const FrequencyEncodeParams& params, const float* inputs, int64_t begin,
                       int64_t end, const MutableFloatArray& outputs) {
  HWY_DYNAMIC_DISPATCH(EncodeRange)(params, inputs, begin, end, outputs);
}

void DifferentiateFrequencies(const FrequencyEncodeParams& params, const FloatArray& gradients,
                              const float* inputs, int64_t begin, int64_t end, float* to) {
  HWY_DYNAMIC_DISPATCH(DifferentiateRange)(params, gradients, inputs, begin, end, to);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
