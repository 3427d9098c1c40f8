// Activations of small networks and their derivatives, a tile at a time.

#include "kernels/fused_mlp/fused_mlp_simd.h"

#include "kernels/fused_matmul/fused_gemm_simd.h"
#include "kernels/fused_mlp/fused_mlp_params.h"
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_mlp/fused_mlp_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/simd/half-inl.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// As tiles of products are laid out.
using DF = hn::CappedTag<float, kMaxTileColumns / 2>;
using VF = hn::Vec<DF>;

// To nearest even, and widened again.
HWY_INLINE VF Rounded(DF df, FloatType type, VF x) {
  if (type == FloatType::kHalf) {
    HWY_ALIGN uint16_t halves[kMaxTileColumns / 2];
    StoreHalves(df, x, halves);
    return LoadHalves(df, halves);
  }
  if (type == FloatType::kBfloat16) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto up = hn::Add(bits, hn::Add(hn::Set(du, 0x7FFF), odd));
    return KeepNaN(df, x, hn::BitCast(df, hn::And(up, hn::Set(du, 0xFFFF0000u))));
  }
  return x;
}

HWY_INLINE VF Activated(DF df, const MlpLayerEnd& end, VF x) {
  const VF zero = hn::Zero(df), one = hn::Set(df, 1.0f), half = hn::Set(df, 0.5f);
  switch (end.activation) {
    case MLP_RELU:
      return hn::IfThenElse(hn::Lt(x, zero), zero, x);
    case MLP_EXPONENTIAL:
      return SafeExp(df, x);
    case MLP_SIGMOID:
      return hn::Div(one, hn::Add(one, SafeExp(df, hn::Neg(x))));
    case MLP_SQUAREPLUS: {
      // Below 0 the sum cancels: (x + s) / 2 is b / (2 (s - x)).
      const VF b = hn::Set(df, end.shape.squareplus_b), size = hn::Abs(x);
      const VF sum = hn::Add(hn::Sqrt(hn::MulAdd(x, x, b)), size);
      const VF below = hn::Div(hn::Mul(half, b), sum);
      return hn::IfThenElse(hn::Lt(x, zero), below, hn::Mul(half, sum));
    }
    case MLP_LEAKY_RELU:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(hn::Set(df, end.shape.negative_slope), x), x);
    case MLP_SOFTPLUS: {
      // No exponential of a number above 0, which may overflow.
      const VF beta = hn::Set(df, end.shape.softplus_beta);
      const VF e = SafeExp(df, hn::Neg(hn::Mul(beta, hn::Abs(x))));
      const VF above = hn::IfThenElse(hn::Lt(x, zero), zero, x);
      return hn::Add(above, hn::Div(SafeLog1p(df, e), beta));
    }
    case MLP_TANH: {
      const VF e = SafeExpm1(df, hn::Mul(hn::Set(df, -2.0f), hn::Abs(x)));
      return hn::CopySign(hn::Div(hn::Neg(e), hn::Add(hn::Set(df, 2.0f), e)), x);
    }
    default:
      return x;
  }
}

// d activation'(.), where y is the activation's value.
HWY_INLINE VF TimesSlope(DF df, const MlpLayerEnd& end, VF d, VF y) {
  const VF one = hn::Set(df, 1.0f);
  switch (end.activation) {
    case MLP_RELU:
      return hn::IfThenElseZero(hn::Gt(y, hn::Zero(df)), d);
    case MLP_EXPONENTIAL:
      return hn::Mul(d, y);
    case MLP_SIGMOID:
      return hn::Mul(d, hn::Mul(y, hn::Sub(one, y)));
    case MLP_SQUAREPLUS: {
      // y^2 / (y^2 + b / 4), which neither over- nor underflows so.
      const VF quarter = hn::Set(df, 0.25f * end.shape.squareplus_b);
      const VF ratio = hn::Div(quarter, hn::Mul(y, y));
      return hn::Div(d, hn::Add(one, ratio));
    }
    case MLP_LEAKY_RELU:
      return hn::IfThenElse(hn::Gt(y, hn::Zero(df)), d,
                            hn::Mul(hn::Set(df, end.shape.negative_slope), d));
    case MLP_SOFTPLUS: {
      const VF beta = hn::Set(df, end.shape.softplus_beta);
      return hn::Mul(hn::Neg(d), SafeExpm1(df, hn::Neg(hn::Mul(beta, y))));
    }
    case MLP_TANH:
      return hn::Mul(d, hn::NegMulAdd(y, y, one));
    default:
      return d;
  }
}

void Activate(const MlpLayerEnd& end, int rows, bool narrow, const float* tile, const float* bias,
              float* to, int64_t to_row) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  for (int64_t at = 0; at < (narrow ? lanes : 2 * lanes); at += lanes) {
    const VF shift = bias != nullptr ? hn::LoadU(df, bias + at) : hn::Zero(df);
    for (int r = 0; r < rows; ++r) {
      const VF x = hn::Add(hn::Load(df, tile + 2 * lanes * r + at), shift);
      hn::StoreU(Rounded(df, end.type, Activated(df, end, x)), df, to + to_row * r + at);
    }
  }
}

void Scale(const MlpLayerEnd& end, int rows, bool narrow, const float* from, int64_t from_row,
           const float* y, int64_t y_row, float* to, int64_t to_row) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  for (int64_t at = 0; at < (narrow ? lanes : 2 * lanes); at += lanes) {
    for (int r = 0; r < rows; ++r) {
      const VF x = TimesSlope(df, end, hn::LoadU(df, from + from_row * r + at),
                              hn::LoadU(df, y + y_row * r + at));
      hn::StoreU(Rounded(df, end.type, x), df, to + to_row * r + at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(Activate);
HWY_EXPORT(Scale);

void ActivateTile(const MlpLayerEnd& end, int rows, bool narrow, const float* tile,
                  const float* bias, float* to, int64_t to_row) {
  HWY_DYNAMIC_DISPATCH(Activate)(end, rows, narrow, tile, bias, to, to_row);
}

void ScaleTile(const MlpLayerEnd& end, int rows, bool narrow, const float* from, int64_t from_row,
               const float* y, int64_t y_row, float* to, int64_t to_row) {
  HWY_DYNAMIC_DISPATCH(Scale)(end, rows, narrow, from, from_row, y, y_row, to, to_row);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
