// The robust loss and its derivatives, vectorised: see robust_loss_params.h for the formulas.

#include "kernels/robust_loss/robust_loss_simd.h"

#include "kernels/robust_loss/robust_loss_params.h"
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/robust_loss/robust_loss_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using MF = hn::Mask<DF>;

HWY_INLINE VF Constant(float value) { return hn::Set(DF(), value); }

// (y e^y - e^y + 1) / y^2 from e^y: the sum of (n + 1) / (n + 2)! y^n where y is small.
HWY_INLINE VF Psi(VF y, VF exp_y, VF expm1_y) {
  VF series = Constant(8.0f / 362880.0f);
  series = hn::MulAdd(series, y, Constant(7.0f / 40320.0f));
  series = hn::MulAdd(series, y, Constant(6.0f / 5040.0f));
  series = hn::MulAdd(series, y, Constant(5.0f / 720.0f));
  series = hn::MulAdd(series, y, Constant(4.0f / 120.0f));
  series = hn::MulAdd(series, y, Constant(3.0f / 24.0f));
  series = hn::MulAdd(series, y, Constant(2.0f / 6.0f));
  series = hn::MulAdd(series, y, Constant(1.0f / 2.0f));
  const VF whole = hn::Div(hn::MulSub(y, exp_y, expm1_y), hn::Mul(y, y));
  return hn::IfThenElse(hn::Lt(hn::Abs(y), Constant(0.5f)), series, whole);
}

// d rho / d alpha for small z: the terms z^3 and on of the series of rho, with the product
// Q_n = (a - 2) ... (a - n + 1), a = alpha / 2, and its derivative carried along.
HWY_INLINE VF AlphaSeries(VF z, VF b, VF alpha, VF s) {
  const VF a = hn::Mul(Constant(0.5f), alpha);
  const VF s_per_b = hn::Div(s, b), u = hn::Div(z, b);
  VF q = hn::Sub(a, Constant(2.0f)), q_slope = Constant(0.5f);
  // z^n b^(2-n) / n! = z^2 u^(n-2) / n!
  VF power = hn::Mul(hn::Mul(z, z), hn::Mul(u, Constant(1.0f / 6.0f)));
  VF sum = hn::Zero(DF());
  for (int n = 3; n < 3 + ROBUST_LOSS_SERIES_TERMS; ++n) {
    const VF order = hn::Mul(Constant(static_cast<float>(n - 2)), s_per_b);
    sum = hn::MulAdd(power, hn::MulAdd(order, q, q_slope), sum);
    const VF factor = hn::Sub(a, Constant(static_cast<float>(n)));
    q_slope = hn::MulAdd(q_slope, factor, hn::Mul(Constant(0.5f), q));
    q = hn::Mul(q, factor);
    power = hn::Mul(power, hn::Mul(u, Constant(1.0f / (n + 1))));
  }
  return hn::Mul(hn::Mul(Constant(-0.25f), s), sum);
}

HWY_INLINE VF SlopeAlpha(VF z, VF b, VF alpha, VF u, VF log1p_u, VF y, VF exp_y, VF expm1_y,
                         VF rho) {
  const DF df;
  const VF s = hn::CopySign(Constant(1.0f), hn::Sub(Constant(2.0f), alpha));
  const VF half = Constant(0.5f);
  const VF w = hn::Div(z, hn::Add(b, z));
  const VF near_zero = hn::Mul(half, hn::MulSub(Psi(y, exp_y, expm1_y), hn::Mul(log1p_u, log1p_u),
                                                hn::Mul(exp_y, hn::Sub(log1p_u, w))));
  // rho (L / 2 - (alpha + 2) / (2 alpha)) + b L / (2 alpha)
  //   + s (alpha rho + b) (e^(s b L / 2) - 1) / (2 (b + z))
  const VF half_per_alpha = hn::Div(half, alpha), half_log = hn::Mul(half, log1p_u);
  const VF two = Constant(2.0f);
  VF elsewhere = hn::Mul(rho, hn::NegMulAdd(hn::Add(alpha, two), half_per_alpha, half_log));
  elsewhere = hn::MulAdd(hn::Mul(b, log1p_u), half_per_alpha, elsewhere);
  const VF rise = SafeExpm1(df, hn::Mul(hn::Mul(s, b), half_log));
  const VF share = hn::Div(hn::Mul(hn::MulAdd(alpha, rho, b), rise), hn::Add(b, z));
  elsewhere = hn::MulAdd(hn::Mul(half, s), share, elsewhere);
  // b e^y (L / (2 alpha) - (alpha + 2) / (2 alpha^2) - 1 / (2 (b + z))) + 2 / alpha^2
  VF bracket = hn::Mul(hn::NegMulAdd(hn::Add(alpha, two), hn::Div(Constant(1.0f), alpha), log1p_u),
                       half_per_alpha);
  bracket = hn::Sub(bracket, hn::Div(half, hn::Add(b, z)));
  const VF below = hn::MulAdd(hn::Mul(b, exp_y), bracket,
                              hn::Mul(Constant(8.0f), hn::Mul(half_per_alpha, half_per_alpha)));
  elsewhere = hn::IfThenElse(hn::Lt(alpha, hn::Zero(df)), below, elsewhere);
  VF slope = hn::IfThenElse(hn::Lt(hn::Abs(alpha), Constant(1.0f)), near_zero, elsewhere);
  const MF small =
      hn::And(hn::Le(z, Constant(ROBUST_LOSS_SERIES_Z)), hn::Le(u, Constant(ROBUST_LOSS_SERIES_U)));
  slope = hn::IfThenElse(small, AlphaSeries(z, b, alpha, s), slope);
  const MF limit =
      hn::Or(hn::Eq(alpha, Constant(2.0f)), hn::Ge(hn::Abs(alpha), Constant(ROBUST_LOSS_INFINITE)));
  slope = hn::IfThenElse(limit, hn::Zero(df), slope);
  // z^3 may underflow where z is NaN's neighbour only: NaN in, NaN out.
  return KeepNaN(df, z, slope);
}

void RunPiece(const RobustLossPiece& piece, int64_t n) {
  const DF df;
  const VF half = Constant(0.5f), one = Constant(1.0f);
  for (int64_t i = 0; i < n; i += hn::Lanes(df)) {
    const VF x = hn::Load(df, piece.x + i), alpha = hn::Load(df, piece.alpha + i);
    const VF per_scale = hn::Div(one, hn::Load(df, piece.scale + i));
    const VF t = hn::Mul(x, per_scale), z = hn::Mul(t, t);
    const VF b = hn::Abs(hn::Sub(alpha, Constant(2.0f)));
    const VF u = hn::Div(z, b), log1p_u = SafeLog1p(df, u);
    const VF y = hn::Mul(hn::Mul(half, alpha), log1p_u), expm1_y = SafeExpm1(df, y);
    // y below 2^-26: e^y - 1 is y to all digits.
    const MF vanishes = hn::Or(hn::Lt(hn::Abs(y), Constant(1e-8f)), hn::Eq(alpha, hn::Zero(df)));
    VF loss = hn::IfThenElse(vanishes, hn::Mul(hn::Mul(half, b), log1p_u),
                             hn::Mul(hn::Div(b, alpha), expm1_y));
    VF factor = SafeExp(df, hn::Mul(hn::MulSub(half, alpha, one), log1p_u));

    const MF is_two = hn::Eq(alpha, Constant(2.0f));
    const MF is_infinite = hn::Ge(hn::Abs(alpha), Constant(ROBUST_LOSS_INFINITE));
    if (!hn::AllFalse(df, hn::Or(is_two, is_infinite))) {
      const VF half_z = hn::Mul(half, z);
      const VF signed_z = hn::CopySign(half_z, alpha);
      const VF limit = hn::CopySign(one, alpha);
      loss = hn::IfThenElse(is_two, half_z, loss);
      loss = hn::IfThenElse(is_infinite, hn::Mul(limit, SafeExpm1(df, signed_z)), loss);
      factor = hn::IfThenElse(is_two, one, factor);
      factor = hn::IfThenElse(is_infinite, SafeExp(df, signed_z), factor);
      // 0 / 0 where alpha is 2 and x is 0 has been replaced, NaN in x has to be put back.
      loss = KeepNaN(df, z, loss);
    }
    const VF slope = hn::Mul(hn::Mul(t, per_scale), factor);
    hn::Store(loss, df, piece.loss + i);
    hn::Store(slope, df, piece.slope + i);
    if (piece.slope_alpha == nullptr) continue;
    hn::Store(hn::Neg(hn::Mul(t, slope)), df, piece.slope_scale + i);
    hn::Store(SlopeAlpha(z, b, alpha, u, log1p_u, y, SafeExp(df, y), expm1_y, loss), df,
              piece.slope_alpha + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(RunPiece);

void RobustLoss(const RobustLossPiece& piece, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RunPiece)(piece, n);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
