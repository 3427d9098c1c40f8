// Frequency encoding: sine and cosine of a vector of points at a time, written row by row.

#include "kernels/frequency_encode/frequency_encode_simd.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/simd/simd_targets.h"

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

// A vector of points is worked on at a time: their coordinates as they lie in memory, kDims
// vectors, and each block of the encoding (x, sin w_0 x, ...) in the same order. Rows of the
// encoding are put together from pieces of kDims floats. kDims = 0: known at run time.
template <int kDims>
class Tile {
 public:
  explicit Tile(const FrequencyEncodeParams& p)
      : p_(p),
        n_dims_(kDims > 0 ? kDims : p.n_dims),
        n_blocks_(2 * p.n_frequencies + p.include_input),
        size_(static_cast<int64_t>(hn::Lanes(DF())) * n_dims_),
        x_(size_),
        // Where there is no column, still with an address.
        blocks_(size_ * std::max<int64_t>(n_blocks_, 1)),
        rows_(size_ * n_blocks_) {}

  int64_t n_points() const { return static_cast<int64_t>(hn::Lanes(DF())); }

  void Encode(const float* inputs, int64_t i, int64_t n, const MutableFloatArray& outputs) {
    const DF df;
    const float* const points = Points(inputs, i, n);
    for (int64_t at = 0; at < size_; at += hn::Lanes(df)) {
      const VF x = hn::LoadU(df, points + at);
      float* to = blocks_.data() + at;
      if (p_.include_input) {
        hn::StoreU(x, df, to);
        to += size_;
      }
      Turns u = FirstTurns(p_, x);
      for (uint32_t k = 0; k < p_.n_frequencies; ++k, u = Twice(u), to += 2 * size_) {
        VF sine, cosine;
        SinCos(u, sine, cosine);
        hn::StoreU(sine, df, to);
        hn::StoreU(cosine, df, to + size_);
      }
    }
    const int64_t width = n_blocks_ * n_dims_;
    float* const rows = outputs.Piece(i * width, rows_.data());
    for (int64_t p = 0; p < n; ++p) {
      float* row = rows + p * width;
      const float* from = blocks_.data() + p * n_dims_;
      for (int64_t b = 0; b < n_blocks_; ++b, row += n_dims_, from += size_) Copy(from, row);
    }
    outputs.Store(i * width, n * width, rows);
  }

  void Differentiate(const FloatArray& d_outputs, const float* inputs, int64_t i, int64_t n,
                     float* to) {
    const DF df;
    const int64_t width = n_blocks_ * n_dims_;
    const float* const rows = d_outputs.Read(i * width, n * width, rows_.data());
    for (int64_t p = 0; p < n; ++p) {
      const float* row = rows + p * width;
      float* block = blocks_.data() + p * n_dims_;
      for (int64_t b = 0; b < n_blocks_; ++b, row += n_dims_, block += size_) Copy(row, block);
    }
    const float* const points = Points(inputs, i, n);
    float* const result = n < n_points() ? x_.data() : to + i * n_dims_;
    for (int64_t at = 0; at < size_; at += hn::Lanes(df)) {
      const float* from = blocks_.data() + at;
      VF sum = hn::Zero(df);
      if (p_.include_input) {
        sum = hn::LoadU(df, from);
        from += size_;
      }
      Turns u = FirstTurns(p_, hn::LoadU(df, points + at));
      VF slope = hn::Set(df, p_.slope);
      for (uint32_t k = 0; k < p_.n_frequencies; ++k, u = Twice(u), from += 2 * size_) {
        VF sine, cosine;
        SinCos(u, sine, cosine);
        const VF along =
            hn::MulSub(hn::LoadU(df, from), cosine, hn::Mul(hn::LoadU(df, from + size_), sine));
        sum = hn::MulAdd(slope, along, sum);
        slope = hn::Add(slope, slope);
      }
      hn::StoreU(sum, df, result + at);
    }
    if (n < n_points()) std::copy_n(result, n * n_dims_, to + i * n_dims_);
  }

 private:
  // Points [i, i + n), followed by what may be read in their place.
  const float* Points(const float* inputs, int64_t i, int64_t n) {
    if (n == n_points()) return inputs + i * n_dims_;
    std::fill(x_.begin(), x_.end(), 0.0f);
    std::copy_n(inputs + i * n_dims_, n * n_dims_, x_.begin());
    return x_.data();
  }

  void Copy(const float* from, float* to) const {
    for (int64_t d = 0; d < (kDims > 0 ? kDims : n_dims_); ++d) to[d] = from[d];
  }

  const FrequencyEncodeParams& p_;
  const int64_t n_dims_, n_blocks_, size_;
  std::vector<float> x_, blocks_, rows_;
};

template <int kDims>
void EncodeTiles(const FrequencyEncodeParams& p, const float* inputs, int64_t begin, int64_t end,
                 const MutableFloatArray& outputs) {
  Tile<kDims> tile(p);
  for (int64_t i = begin; i < end; i += tile.n_points()) {
    tile.Encode(inputs, i, std::min(tile.n_points(), end - i), outputs);
  }
}

template <int kDims>
void DifferentiateTiles(const FrequencyEncodeParams& p, const FloatArray& d_outputs,
                        const float* inputs, int64_t begin, int64_t end, float* to) {
  Tile<kDims> tile(p);
  for (int64_t i = begin; i < end; i += tile.n_points()) {
    tile.Differentiate(d_outputs, inputs, i, std::min(tile.n_points(), end - i), to);
  }
}

void EncodeRange(const FrequencyEncodeParams& p, const float* inputs, int64_t begin, int64_t end,
                 const MutableFloatArray& outputs) {
  const auto run = p.n_dims == 3 ? EncodeTiles<3> : p.n_dims == 2 ? EncodeTiles<2> : EncodeTiles<0>;
  run(p, inputs, begin, end, outputs);
}

void DifferentiateRange(const FrequencyEncodeParams& p, const FloatArray& d_outputs,
                        const float* inputs, int64_t begin, int64_t end, float* to) {
  const auto run = p.n_dims == 3   ? DifferentiateTiles<3>
                   : p.n_dims == 2 ? DifferentiateTiles<2>
                                   : DifferentiateTiles<0>;
  run(p, d_outputs, inputs, begin, end, to);
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

void DifferentiateFrequencies(const FrequencyEncodeParams& params, const FloatArray& d_outputs,
                              const float* inputs, int64_t begin, int64_t end, float* to) {
  HWY_DYNAMIC_DISPATCH(DifferentiateRange)(params, d_outputs, inputs, begin, end, to);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
