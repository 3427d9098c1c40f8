// ShEncode and ShEncodeGrad on the CPU: a vector of points at a time, transposed into rows. A point
// is done by one thread: deterministic.

#include <algorithm>
#include <iterator>

#include "kernels/runtime/op.h"
#include "kernels/sh_encode/sh_encode_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sh_encode/sh_encode_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/sh_encode/sh_encode_formula.h"

using DF = hn::ScalableTag<float>;

// All coefficients of a vector of points, and as much room for rows.
template <int kDegree>
struct Tile {
  static constexpr int64_t kWidth = kDegree * kDegree;
  HWY_ALIGN float columns[kWidth * hn::MaxLanes(DF())] = {};
  HWY_ALIGN float rows[kWidth * hn::MaxLanes(DF())];

  void FromRows(const float* from, int64_t n) {
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t c = 0; c < kWidth; ++c) columns[c * Floats::Lanes() + p] = from[p * kWidth + c];
    }
  }
  void ToRows(int64_t n, float* to) const {
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t c = 0; c < kWidth; ++c) to[p * kWidth + c] = columns[c * Floats::Lanes() + p];
    }
  }
};

// The columns of a tile, to the formulas.
struct Columns {
  float* columns;
  HWY_INLINE void set(int i, Floats y) const { y.Store(columns + i * Floats::Lanes()); }
  HWY_INLINE Floats get(int i) const { return Floats::Load(columns + i * Floats::Lanes()); }
};

// Up to a vector of points; lanes past `n` are 0.
HWY_INLINE void LoadDirections(const float* directions, int64_t n, Floats& x, Floats& y,
                               Floats& z) {
  float padded[3 * hn::MaxLanes(DF())];
  if (n < Floats::Lanes()) {
    std::fill(std::copy_n(directions, 3 * n, padded), std::end(padded), 0.0f);
    directions = padded;
  }
  hn::LoadInterleaved3(DF(), directions, x.v, y.v, z.v);
}

template <int kDegree>
void EncodeRange(CpuCall& call, const ShEncodeParams& params, int64_t begin, int64_t end) {
  const MutableFloatArray outputs = call.float_out(0);
  Tile<kDegree> tile;
  const int64_t width = tile.kWidth;
  for (int64_t i = begin; i < end; i += Floats::Lanes()) {
    const int64_t n = std::min(Floats::Lanes(), end - i);
    Floats x, y, z;
    LoadDirections(call.in<float>(0) + 3 * i, n, x, y, z);
    sh_coefficients(params, kDegree, x, y, z, Columns{tile.columns});
    float* const piece = outputs.Piece(i * width, tile.rows);
    tile.ToRows(n, piece);
    outputs.Store(i * width, n * width, piece);
  }
}

template <int kDegree>
void DifferentiateRange(CpuCall& call, const ShEncodeParams& params, int64_t begin, int64_t end) {
  const FloatArray d_outputs = call.floats(0);
  Tile<kDegree> tile;
  const int64_t width = tile.kWidth;
  float padded[3 * hn::MaxLanes(DF())];
  for (int64_t i = begin; i < end; i += Floats::Lanes()) {
    const int64_t n = std::min(Floats::Lanes(), end - i);
    Floats x, y, z;
    LoadDirections(call.in<float>(1) + 3 * i, n, x, y, z);
    tile.FromRows(d_outputs.Read(i * width, n * width, tile.rows), n);
    const auto sum = sh_gradient(params, kDegree, x, y, z, Columns{tile.columns});
    float* const to = call.out<float>(0) + 3 * i;
    hn::StoreInterleaved3(sum.x.v, sum.y.v, sum.z.v, DF(), n == Floats::Lanes() ? to : padded);
    if (n < Floats::Lanes()) std::copy_n(padded, 3 * n, to);
  }
}

using RangeFn = void (*)(CpuCall&, const ShEncodeParams&, int64_t, int64_t);

void ForDegree(CpuCall& call, int64_t cycles, const RangeFn (&of_degree)[SH_ENCODE_MAX_DEGREE]) {
  const int64_t n = call.Size("points"), degree = call.Int("degree");
  const ShEncodeParams params = MakeShEncodeParams(n, degree);
  call.ParallelFor(n, cycles * degree * degree, [&](int64_t begin, int64_t end) {
    of_degree[degree - 1](call, params, begin, end);
  });
}

void ShEncode(CpuCall& call) {
  ForDegree(call, 2,
            {EncodeRange<1>, EncodeRange<2>, EncodeRange<3>, EncodeRange<4>, EncodeRange<5>,
             EncodeRange<6>, EncodeRange<7>, EncodeRange<8>});
}

void ShEncodeGrad(CpuCall& call) {
  ForDegree(
      call, 4,
      {DifferentiateRange<1>, DifferentiateRange<2>, DifferentiateRange<3>, DifferentiateRange<4>,
       DifferentiateRange<5>, DifferentiateRange<6>, DifferentiateRange<7>, DifferentiateRange<8>});
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("ShEncode", ShEncode);
SIMD_KERNEL("ShEncodeGrad", ShEncodeGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
