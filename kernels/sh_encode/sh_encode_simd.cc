// Spherical harmonics: a vector of points at a time, then transposed into rows.

#include "kernels/sh_encode/sh_encode_simd.h"

#include <algorithm>

#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sh_encode/sh_encode_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// x, y, z of up to a vector of points; lanes past `n` are 0.
HWY_INLINE void LoadDirections(const float* directions, int64_t n, VF& x, VF& y, VF& z) {
  const DF df;
  HWY_ALIGN float padded[3 * hn::MaxLanes(df)];
  if (n < static_cast<int64_t>(hn::Lanes(df))) {
    std::fill_n(padded, 3 * hn::Lanes(df), 0.0f);
    std::copy_n(directions, 3 * n, padded);
    directions = padded;
  }
  hn::LoadInterleaved3(df, directions, x, y, z);
}

// All coefficients of the bands below kDegree, one vector each.
template <int kDegree>
HWY_INLINE void Coefficients(const ShEncodeParams& p, VF x, VF y, VF z, VF* HWY_RESTRICT out) {
  const DF df;
  VF re = hn::Set(df, 1.0f), im = hn::Zero(df);  // (x + iy)^m
  for (int m = 0; m < kDegree; ++m) {
    VF before = hn::Zero(df), q = hn::Set(df, p.first[m]);
    for (int l = m; l < kDegree; ++l) {
      if (l > m) {
        const VF up = hn::Mul(hn::Set(df, p.up[m][l]), z);
        const VF next = hn::MulSub(up, q, hn::Mul(hn::Set(df, p.down[m][l]), before));
        before = q;
        q = next;
      }
      out[l * l + l + m] = hn::Mul(q, re);
      if (m > 0) out[l * l + l - m] = hn::Mul(q, im);
    }
    const VF next_re = hn::MulSub(x, re, hn::Mul(y, im));
    im = hn::MulAdd(x, im, hn::Mul(y, re));
    re = next_re;
  }
}

// The gradient of <g, coefficients>: d (x + iy)^m / dx = m (x + iy)^{m-1}, / dy = i times that.
template <int kDegree>
HWY_INLINE void Gradient(const ShEncodeParams& p, VF x, VF y, VF z, const VF* HWY_RESTRICT g,
                         VF& to_x, VF& to_y, VF& to_z) {
  const DF df;
  to_x = to_y = to_z = hn::Zero(df);
  VF re = hn::Set(df, 1.0f), im = hn::Zero(df);           // (x + iy)^m
  VF re_before = hn::Zero(df), im_before = hn::Zero(df);  // m (x + iy)^{m-1}
  for (int m = 0; m < kDegree; ++m) {
    VF before = hn::Zero(df), q = hn::Set(df, p.first[m]);
    VF slope_before = hn::Zero(df), slope = hn::Zero(df);  // dq / dz
    VF sum_re = hn::Zero(df), sum_im = hn::Zero(df);       // sum over l of g q
    for (int l = m; l < kDegree; ++l) {
      if (l > m) {
        const VF up = hn::Set(df, p.up[m][l]), down = hn::Set(df, p.down[m][l]);
        const VF next = hn::MulSub(hn::Mul(up, z), q, hn::Mul(down, before));
        const VF next_slope = hn::MulSub(up, hn::MulAdd(z, slope, q), hn::Mul(down, slope_before));
        before = q;
        q = next;
        slope_before = slope;
        slope = next_slope;
      }
      const VF g_re = g[l * l + l + m];
      VF along = hn::Mul(g_re, re);
      sum_re = hn::MulAdd(g_re, q, sum_re);
      if (m > 0) {
        const VF g_im = g[l * l + l - m];
        along = hn::MulAdd(g_im, im, along);
        sum_im = hn::MulAdd(g_im, q, sum_im);
      }
      to_z = hn::MulAdd(slope, along, to_z);
    }
    if (m > 0) {
      to_x = hn::MulAdd(sum_re, re_before, hn::MulAdd(sum_im, im_before, to_x));
      to_y = hn::MulAdd(sum_im, re_before, hn::NegMulAdd(sum_re, im_before, to_y));
    }
    const VF next = hn::Set(df, static_cast<float>(m + 1));
    re_before = hn::Mul(next, re);
    im_before = hn::Mul(next, im);
    const VF next_re = hn::MulSub(x, re, hn::Mul(y, im));
    im = hn::MulAdd(x, im, hn::Mul(y, re));
    re = next_re;
  }
}

template <int kDegree>
void EncodeRange(const ShEncodeParams& params, const float* directions, int64_t begin, int64_t end,
                 const MutableFloatArray& outputs) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  constexpr int64_t kWidth = kDegree * kDegree;
  VF values[kWidth];
  HWY_ALIGN float columns[kWidth * hn::MaxLanes(df)];
  HWY_ALIGN float rows[kWidth * hn::MaxLanes(df)];
  for (int64_t i = begin; i < end; i += lanes) {
    const int64_t n = std::min(lanes, end - i);
    VF x, y, z;
    LoadDirections(directions + 3 * i, n, x, y, z);
    Coefficients<kDegree>(params, x, y, z, values);
    for (int64_t c = 0; c < kWidth; ++c) hn::Store(values[c], df, columns + c * lanes);
    float* const piece = outputs.Piece(i * kWidth, rows);
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t c = 0; c < kWidth; ++c) piece[p * kWidth + c] = columns[c * lanes + p];
    }
    outputs.Store(i * kWidth, n * kWidth, piece);
  }
}

template <int kDegree>
void DifferentiateRange(const ShEncodeParams& params, const FloatArray& d_outputs,
                        const float* directions, int64_t begin, int64_t end, float* to) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  constexpr int64_t kWidth = kDegree * kDegree;
  VF g[kWidth];
  HWY_ALIGN float columns[kWidth * hn::MaxLanes(df)] = {};
  HWY_ALIGN float rows[kWidth * hn::MaxLanes(df)];
  HWY_ALIGN float padded[3 * hn::MaxLanes(df)];
  for (int64_t i = begin; i < end; i += lanes) {
    const int64_t n = std::min(lanes, end - i);
    VF x, y, z, to_x, to_y, to_z;
    LoadDirections(directions + 3 * i, n, x, y, z);
    const float* const piece = d_outputs.Read(i * kWidth, n * kWidth, rows);
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t c = 0; c < kWidth; ++c) columns[c * lanes + p] = piece[p * kWidth + c];
    }
    for (int64_t c = 0; c < kWidth; ++c) g[c] = hn::Load(df, columns + c * lanes);
    Gradient<kDegree>(params, x, y, z, g, to_x, to_y, to_z);
    hn::StoreInterleaved3(to_x, to_y, to_z, df, n == lanes ? to + 3 * i : padded);
    if (n < lanes) std::copy_n(padded, 3 * n, to + 3 * i);
  }
}

#define FOR_DEGREE(call)   \
  switch (params.degree) { \
    case 1:                \
      return call<1>;      \
    case 2:                \
      return call<2>;      \
    case 3:                \
      return call<3>;      \
    case 4:                \
      return call<4>;      \
    case 5:                \
      return call<5>;      \
    case 6:                \
      return call<6>;      \
    case 7:                \
      return call<7>;      \
    default:               \
      return call<8>;      \
  }

using EncodeFn = void (*)(const ShEncodeParams&, const float*, int64_t, int64_t,
                          const MutableFloatArray&);
using DifferentiateFn = void (*)(const ShEncodeParams&, const FloatArray&, const float*, int64_t,
                                 int64_t, float*);

EncodeFn EncodeFor(const ShEncodeParams& params){FOR_DEGREE(EncodeRange)} DifferentiateFn
    DifferentiateFor(const ShEncodeParams& params) {
  FOR_DEGREE(DifferentiateRange)
}
#undef FOR_DEGREE

void Encode(const ShEncodeParams& params, const float* directions, int64_t begin, int64_t end,
            const MutableFloatArray& outputs) {
  EncodeFor(params)(params, directions, begin, end, outputs);
}

void Differentiate(const ShEncodeParams& params, const FloatArray& d_outputs,
                   const float* directions, int64_t begin, int64_t end, float* to) {
  DifferentiateFor(params)(params, d_outputs, directions, begin, end, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(Encode);
HWY_EXPORT(Differentiate);

void EncodeSh(const ShEncodeParams& params, const float* directions, int64_t begin, int64_t end,
              const MutableFloatArray& outputs) {
  HWY_DYNAMIC_DISPATCH(Encode)(params, directions, begin, end, outputs);
}

void DifferentiateSh(const ShEncodeParams& params, const FloatArray& d_outputs,
                     const float* directions, int64_t begin, int64_t end, float* to) {
  HWY_DYNAMIC_DISPATCH(Differentiate)(params, d_outputs, directions, begin, end, to);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
