// Cells, corners and interpolation weights, vectorised over points. Compiled once per instruction
// set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_HASH_ENCODE_CELLS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_HASH_ENCODE_CELLS_INL_H_
#undef METAL_OPS_HASH_ENCODE_CELLS_INL_H_
#else
#define METAL_OPS_HASH_ENCODE_CELLS_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/hash_encode/hash_encode_params.h"
#include "kernels/hash_encode/hash_encode_simd.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<uint32_t>;
using DI = hn::ScalableTag<int32_t>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

// Points of a block. A multiple of every target's vector; rows and weights of 8 corners fit the L1
// cache beside them.
constexpr size_t kBlock = 256;
constexpr size_t kMaxCorners = size_t{1} << HASH_ENCODE_MAX_DIMS;
// Rows of points this far ahead are prefetched.
constexpr size_t kAhead = 16;

// Results of the first half of a block's work, for the second.
struct Block {
  alignas(64) uint32_t rows[kMaxCorners][kBlock + kAhead];  // within the level
  alignas(64) float weights[kMaxCorners][kBlock];  // or <d_outputs, row> for gradients of points
};

// fma with one rounding, on targets without the instruction too: it decides the cell.
HWY_INLINE VF ExactMulAdd(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const DF df;
  HWY_ALIGN float lanes[3][hn::MaxLanes(df)];
  hn::Store(a, df, lanes[0]);
  hn::Store(b, df, lanes[1]);
  hn::Store(c, df, lanes[2]);
  for (size_t i = 0; i < hn::Lanes(df); ++i) {
    lanes[0][i] = std::fma(lanes[0][i], lanes[1][i], lanes[2][i]);
  }
  return hn::Load(df, lanes[0]);
#endif
}

// floor(position) as int32, so that a row is always within the table: ConvertTo saturates, and NaN
// becomes 0.
HWY_INLINE VU ToCell(VF floor) {
  const VF known = hn::IfThenElseZero(hn::Eq(floor, floor), floor);
  return hn::BitCast(DU(), hn::ConvertTo(DI(), known));
}

// Upper halves of 32 x 32 bit products.
HWY_INLINE VU MulHigh32(VU a, VU b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(DU(), static_cast<uint32_t>((uint64_t{hn::GetLane(a)} * hn::GetLane(b)) >> 32));
#else
  const DU du;
  const hn::Repartition<uint64_t, DU> du64;
  const auto even = hn::ShiftRight<32>(hn::MulEven(a, b));
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(du64, a))), b);
  return hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, even));
#endif
}

// One vector of points in one level: cells, and per axis the weight of the upper corner with its
// derivatives.
template <size_t D>
struct Cells {
  // Spelt out: GCC gives an implicit one no target attribute, and cannot inline the vectors' then.
  HWY_INLINE Cells() {}
  VU cell[D];
  VF weight[D];
  VF slope[D];  // d weight / d x
  VF curve[D];  // d^2 weight / d x^2
};

// `x` of up to a vector of points from the row-major [*, D]; lanes past `n` are 0.
template <size_t D>
HWY_INLINE void LoadPoints(const float* points, size_t n, VF* HWY_RESTRICT x) {
  const DF df;
  HWY_ALIGN float padded[D * hn::MaxLanes(df)];
  if (HWY_UNLIKELY(n < hn::Lanes(df))) {
    for (size_t i = 0; i < D * hn::Lanes(df); ++i) padded[i] = i < D * n ? points[i] : 0.0f;
    points = padded;
  }
  if constexpr (D == 2) hn::LoadInterleaved2(df, points, x[0], x[1]);
  if constexpr (D == 3) hn::LoadInterleaved3(df, points, x[0], x[1], x[2]);
  if constexpr (D == 4) hn::LoadInterleaved4(df, points, x[0], x[1], x[2], x[3]);
}

// Adds to up to a vector of points, or overwrites them.
template <size_t D>
HWY_INLINE void StorePoints(const VF* HWY_RESTRICT add, bool overwrite, size_t n, float* points) {
  const DF df;
  VF sum[D];
  if (overwrite) {
    for (size_t d = 0; d < D; ++d) sum[d] = add[d];
  } else {
    LoadPoints<D>(points, n, sum);
    for (size_t d = 0; d < D; ++d) sum[d] = hn::Add(sum[d], add[d]);
  }
  HWY_ALIGN float padded[D * hn::MaxLanes(df)];
  const bool whole = n >= hn::Lanes(df);
  float* to = whole ? points : padded;
  if constexpr (D == 2) hn::StoreInterleaved2(sum[0], sum[1], df, to);
  if constexpr (D == 3) hn::StoreInterleaved3(sum[0], sum[1], sum[2], df, to);
  if constexpr (D == 4) hn::StoreInterleaved4(sum[0], sum[1], sum[2], sum[3], df, to);
  if (HWY_UNLIKELY(!whole)) {
    for (size_t i = 0; i < D * n; ++i) points[i] = padded[i];
  }
}

template <size_t D>
HWY_INLINE void FindCells(const HashEncodeLevel& level, bool smoothstep, const VF* x,
                          Cells<D>& cells) {
  const DF df;
  const VF scale = hn::Set(df, level.scale);
  for (size_t d = 0; d < D; ++d) {
    const VF position = ExactMulAdd(x[d], scale, hn::Set(df, 0.5f));
    const VF floor = hn::Floor(position);
    const VF w = hn::Sub(position, floor);
    cells.cell[d] = ToCell(floor);
    if (smoothstep) {
      // w^2 (3 - 2 w), 6 w (1 - w), 6 - 12 w
      const VF w2 = hn::Add(w, w);
      const VF six_w = hn::Mul(hn::Set(df, 6.0f), w);
      cells.weight[d] = hn::Mul(hn::Mul(w, w), hn::Sub(hn::Set(df, 3.0f), w2));
      cells.slope[d] = hn::Mul(hn::Mul(six_w, hn::Sub(hn::Set(df, 1.0f), w)), scale);
      cells.curve[d] =
          hn::Mul(hn::Mul(hn::Sub(hn::Set(df, 6.0f), hn::Add(six_w, six_w)), scale), scale);
    } else {
      cells.weight[d] = w;
      cells.slope[d] = scale;
      cells.curve[d] = hn::Zero(df);
    }
  }
}

// Rows of the 2^D corners; bit d of a corner's number says whether it is the upper one along axis
// d.
template <size_t D>
HWY_INLINE void FindRows(const HashEncodeLevel& level, const VU* cell, VU* HWY_RESTRICT rows) {
  const DU du;
  constexpr size_t kCorners = size_t{1} << D;
  VU low[D], high[D];
  for (size_t d = 0; d < D; ++d) {
    const VU factor = hn::Set(du, level.factors[d]);
    low[d] = hn::Mul(cell[d], factor);
    high[d] = hn::Add(low[d], factor);
  }
  rows[0] = low[0];
  rows[1] = high[0];
  if (level.hashed) {
    for (size_t d = 1; d < D; ++d) {
      for (size_t c = 0; c < (size_t{1} << d); ++c) {
        rows[c + (size_t{1} << d)] = hn::Xor(rows[c], high[d]);
        rows[c] = hn::Xor(rows[c], low[d]);
      }
    }
  } else {
    for (size_t d = 1; d < D; ++d) {
      for (size_t c = 0; c < (size_t{1} << d); ++c) {
        rows[c + (size_t{1} << d)] = hn::Add(rows[c], high[d]);
        rows[c] = hn::Add(rows[c], low[d]);
      }
    }
  }
  if (level.mask != 0) {
    const VU mask = hn::Set(du, level.mask);
    for (size_t c = 0; c < kCorners; ++c) rows[c] = hn::And(rows[c], mask);
  } else {
    // Barrett: the quotient is at most 1 too small, and size < 2^31, so one conditional subtraction
    // finishes.
    const VU size = hn::Set(du, level.size);
    const VU reciprocal = hn::Set(du, level.reciprocal);
    for (size_t c = 0; c < kCorners; ++c) {
      const VU rest = hn::Sub(rows[c], hn::Mul(MulHigh32(rows[c], reciprocal), size));
      rows[c] = hn::Min(rest, hn::Sub(rest, size));
    }
  }
}

// Interpolation weights of the corners.
template <size_t D>
HWY_INLINE void FindWeights(const VF* weight, VF* HWY_RESTRICT weights) {
  const VF one = hn::Set(DF(), 1.0f);
  weights[0] = hn::Sub(one, weight[0]);
  weights[1] = weight[0];
  for (size_t d = 1; d < D; ++d) {
    const VF low = hn::Sub(one, weight[d]);
    for (size_t c = 0; c < (size_t{1} << d); ++c) {
      weights[c + (size_t{1} << d)] = hn::Mul(weights[c], weight[d]);
      weights[c] = hn::Mul(weights[c], low);
    }
  }
}

// Derivatives of the weights along a direction v, as dual numbers.
template <size_t D>
HWY_INLINE void FindTangentWeights(const Cells<D>& cells, const VF* v, VF* HWY_RESTRICT tangents) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  VF weights[size_t{1} << D];
  weights[0] = hn::Sub(one, cells.weight[0]);
  weights[1] = cells.weight[0];
  tangents[1] = hn::Mul(cells.slope[0], v[0]);
  tangents[0] = hn::Neg(tangents[1]);
  for (size_t d = 1; d < D; ++d) {
    const VF high = cells.weight[d];
    const VF low = hn::Sub(one, high);
    const VF change = hn::Mul(cells.slope[d], v[d]);
    for (size_t c = 0; c < (size_t{1} << d); ++c) {
      const size_t upper = c + (size_t{1} << d);
      const VF moved = hn::Mul(weights[c], change);
      tangents[upper] = hn::MulAdd(tangents[c], high, moved);
      tangents[c] = hn::MulSub(tangents[c], low, moved);
      weights[upper] = hn::Mul(weights[c], high);
      weights[c] = hn::Mul(weights[c], low);
    }
  }
}

// Sums `values` over the corners, along each axis with the weight's derivative of the given order
// (0, 1 or 2).
template <size_t D>
HWY_INLINE VF Contract(const Cells<D>& cells, const VF* values, const int (&order)[D]) {
  VF sums[size_t{1} << D];
  for (size_t c = 0; c < (size_t{1} << D); ++c) sums[c] = values[c];
  for (size_t d = D; d-- > 0;) {
    for (size_t c = 0; c < (size_t{1} << d); ++c) {
      const VF change = hn::Sub(sums[c + (size_t{1} << d)], sums[c]);
      if (order[d] == 0) sums[c] = hn::MulAdd(change, cells.weight[d], sums[c]);
      if (order[d] == 1) sums[c] = hn::Mul(change, cells.slope[d]);
      if (order[d] == 2) sums[c] = hn::Mul(change, cells.curve[d]);
    }
  }
  return sums[0];
}

// First half of a block's work for a level: rows, and weights (of tangents, if there are any)
// unless not wanted.
template <size_t D>
void PrepareBlock(const HashEncodeCall& call, const HashEncodeLevel& level, int64_t begin, size_t n,
                  bool want_weights, Block& block) {
  const DF df;
  const DU du;
  constexpr size_t kCorners = size_t{1} << D;
  for (size_t i = 0; i < n; i += hn::Lanes(df)) {
    const int64_t first = (begin + static_cast<int64_t>(i)) * static_cast<int64_t>(D);
    VF x[D];
    LoadPoints<D>(call.points + first, n - i, x);
    Cells<D> cells;
    FindCells<D>(level, call.smoothstep, x, cells);
    VU rows[kCorners];
    FindRows<D>(level, cells.cell, rows);
    for (size_t c = 0; c < kCorners; ++c) hn::Store(rows[c], du, block.rows[c] + i);
    if (!want_weights) continue;
    VF weights[kCorners];
    if (call.tangents != nullptr) {
      VF v[D];
      LoadPoints<D>(call.tangents + first, n - i, v);
      FindTangentWeights<D>(cells, v, weights);
    } else {
      FindWeights<D>(cells.weight, weights);
    }
    for (size_t c = 0; c < kCorners; ++c) hn::Store(weights[c], df, block.weights[c] + i);
  }
}

// Second half for gradients of points: block.weights holds <d_outputs, row> of each corner.
// `gradients` is at the block's first point.
template <size_t D>
void FinishPointGradients(const HashEncodeCall& call, const HashEncodeLevel& level, int64_t begin,
                          size_t n, bool overwrite, const Block& block, float* gradients) {
  const DF df;
  constexpr size_t kCorners = size_t{1} << D;
  for (size_t i = 0; i < n; i += hn::Lanes(df)) {
    const int64_t first = (begin + static_cast<int64_t>(i)) * static_cast<int64_t>(D);
    VF x[D];
    LoadPoints<D>(call.points + first, n - i, x);
    Cells<D> cells;
    FindCells<D>(level, call.smoothstep, x, cells);
    VF values[kCorners];
    for (size_t c = 0; c < kCorners; ++c) values[c] = hn::Load(df, block.weights[c] + i);

    VF gradient[D];
    if (call.tangents == nullptr) {
      for (size_t k = 0; k < D; ++k) {
        int order[D] = {};
        order[k] = 1;
        gradient[k] = Contract<D>(cells, values, order);
      }
    } else {
      // Row k of the Hessian times v. The diagonal is 0 for linear interpolation.
      VF v[D];
      LoadPoints<D>(call.tangents + first, n - i, v);
      for (size_t k = 0; k < D; ++k) gradient[k] = hn::Zero(df);
      for (size_t k = 0; k < D; ++k) {
        for (size_t d = k; d < D; ++d) {
          if (d == k && !call.smoothstep) continue;
          int order[D] = {};
          ++order[k];
          ++order[d];
          const VF second = Contract<D>(cells, values, order);
          gradient[k] = hn::MulAdd(second, v[d], gradient[k]);
          if (d != k) gradient[d] = hn::MulAdd(second, v[k], gradient[d]);
        }
      }
    }
    StorePoints<D>(gradient, overwrite, n - i, gradients + i * D);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_HASH_ENCODE_CELLS_INL_H_
