// The focal losses and their derivatives, vectorised: see focal_loss_params.h for the formulas.

#include "kernels/focal_loss/focal_loss_simd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/focal_loss/focal_loss_simd.cc"
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

// q^gamma for q >= 0. gamma = 0: 1; 0^gamma = 0 otherwise.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Power(D d, V q, float gamma) {
  if (gamma == 0.0f) return KeepNaN(d, q, hn::Set(d, 1.0f));
  if (gamma == 1.0f) return q;
  if (gamma == 2.0f) return hn::Mul(q, q);
  // Subnormal numbers have no logarithm here; their powers are as good as 0.
  const auto vanishes = hn::Lt(q, hn::Set(d, 1.17549435e-38f));
  const V log_q = hn::Log(d, hn::IfThenElse(vanishes, hn::Set(d, 1.0f), q));
  const V power = SafeExp(d, hn::Mul(hn::Set(d, gamma), log_q));
  return KeepNaN(d, q, hn::IfThenElse(vanishes, hn::Zero(d), power));
}

void SigmoidPiece(const FocalLossParams& p, const float* x_piece, const float* y_piece, int64_t n,
                  float* loss, float* slope) {
  const DF df;
  const VF one = hn::Set(df, 1.0f), half = hn::Set(df, 0.5f);
  const VF smoothing = hn::Set(df, p.label_smoothing), alpha = hn::Set(df, p.alpha);
  for (int64_t i = 0; i < n; i += hn::Lanes(df)) {
    const VF x = hn::Load(df, x_piece + i);
    // y (1 - s) + s / 2
    const VF hard = hn::Load(df, y_piece + i);
    const VF y = hn::MulAdd(smoothing, hn::Sub(half, hard), hard);
    const VF not_y = hn::Sub(one, y);
    const VF e = SafeExp(df, hn::Neg(hn::Abs(x)));
    const VF large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
    const auto positive = hn::Ge(x, hn::Zero(df));
    const VF prob = hn::IfThenElse(positive, large, small);      // sigmoid(x)
    const VF not_prob = hn::IfThenElse(positive, small, large);  // sigmoid(-x)
    const VF q = hn::MulAdd(y, not_prob, hn::Mul(not_y, prob));
    const VF entropy = hn::Add(hn::NegMulAdd(x, y, hn::Max(x, hn::Zero(df))), SafeLog1p(df, e));
    const VF focus = Power(df, q, p.gamma);
    VF weight = one;
    if (p.balanced) weight = hn::MulAdd(y, alpha, hn::Mul(not_y, hn::Sub(one, alpha)));
    const VF weighted = hn::Mul(weight, focus);
    // q vanishes only with p (1 - p), and then so does q^gamma (p - y).
    const VF ratio = hn::Div(hn::Mul(hn::Mul(hn::Sub(not_y, y), prob), not_prob), q);
    const VF safe = hn::IfThenElse(hn::Eq(q, hn::Zero(df)), hn::Zero(df), ratio);
    // y (p - 1) + (1 - y) p = p - y, without cancelling where p is near y
    const VF error = hn::MulSub(not_y, prob, hn::Mul(y, not_prob));
    const VF bend = hn::MulAdd(hn::Mul(hn::Set(df, p.gamma), entropy), safe, error);
    hn::Store(KeepNaN(df, x, hn::Mul(weighted, entropy)), df, loss + i);
    hn::Store(KeepNaN(df, x, hn::Mul(weighted, bend)), df, slope + i);
  }
}

// What a row's softmax is made of; the largest class's exponential, 1, would eat the digits of the
// others' sum and is left out of it.
struct Softmax {
  int64_t top;
  float shift, others, log_total, per_total;
};

// Leaves e^(x - shift) in `e`.
HWY_INLINE Softmax MakeSoftmax(float* x, int64_t n, float* e) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const float infinity = std::numeric_limits<float>::infinity();
  std::fill_n(x + n, lanes, -infinity);
  Softmax row = {};
  VF most = hn::Set(df, -infinity);
  for (int64_t c = 0; c < n; c += lanes) {
    const VF v = hn::LoadU(df, x + c);
    most = hn::IfThenElse(hn::Gt(v, most), v, most);  // NaN is never the largest
  }
  row.shift = hn::GetLane(hn::MaxOfLanes(df, most));
  while (row.top < n && !(x[row.top] == row.shift)) ++row.top;
  if (row.top == n) row.top = 0;  // all are NaN
  const float top_value = x[row.top];
  x[row.top] = -infinity;
  VF sum = hn::Zero(df);
  double others = 0.0;
  for (int64_t c = 0; c < n; c += lanes) {
    const VF v = SafeExp(df, hn::Sub(hn::LoadU(df, x + c), hn::Set(df, row.shift)));
    hn::StoreU(v, df, e + c);
    sum = hn::Add(sum, v);
    if (c % 1024 == 0) {
      others += hn::GetLane(hn::SumOfLanes(df, sum));
      sum = hn::Zero(df);
    }
  }
  others += hn::GetLane(hn::SumOfLanes(df, sum));
  x[row.top] = top_value;
  // NaN where the largest is infinite, or none.
  e[row.top] = 1.0f + (top_value - row.shift);
  row.others = static_cast<float>(others) + (e[row.top] - 1.0f);
  row.log_total = std::log1p(row.others);
  row.per_total = 1.0f / (1.0f + row.others);
  return row;
}

// Only class `own` has a target, of 1: h is 0 elsewhere.
HWY_INLINE float OneClass(const FocalLossParams& p, const Softmax& row, const float* x, int64_t own,
                          int64_t n, float* slope) {
  const DF df;
  const hn::CappedTag<float, 1> one;
  const float prob = slope[own] * row.per_total;
  const float not_prob = own == row.top ? row.others * row.per_total : 1.0f - prob;
  const float log_prob = x[own] - row.shift - row.log_total;
  const float focus = hn::GetLane(Power(one, hn::Set(one, not_prob), p.gamma));
  // gamma p (1 - p)^(gamma - 1) log p: log p vanishes with 1 - p.
  const float ratio = not_prob == 0.0f ? -1.0f : log_prob / not_prob;
  const float h = p.alpha * focus * (p.gamma * prob * ratio - 1.0f);
  const VF factor = hn::Set(df, -h * row.per_total);
  for (int64_t c = 0; c < n; c += hn::Lanes(df)) {
    hn::StoreU(hn::Mul(hn::LoadU(df, slope + c), factor), df, slope + c);
  }
  slope[own] = h * not_prob;  // h - p h would cancel
  return -p.alpha * focus * log_prob;
}

float SoftmaxRow(const FocalLossParams& p, float* x, float* y, int64_t own, int64_t n,
                 float* slope) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const Softmax row = MakeSoftmax(x, n, slope);
  if (own >= 0) return OneClass(p, row, x, own, n, slope);
  std::fill_n(y + n, lanes, 0.0f);
  const VF zero = hn::Zero(df), one = hn::Set(df, 1.0f);
  const VF per_total = hn::Set(df, row.per_total);
  const VF keep = hn::Set(df, 1.0f - p.label_smoothing), gamma = hn::Set(df, p.gamma);
  const VF smooth = hn::Set(df, p.label_smoothing / static_cast<float>(n));
  const VF shift = hn::Set(df, row.shift), log_total = hn::Set(df, row.log_total);
  const VF top = hn::Set(df, row.others * row.per_total);
  double loss = 0.0, total_h = 0.0;
  for (int64_t c = 0; c < n; c += lanes) {
    const VF target = hn::MulAdd(hn::LoadU(df, y + c), keep, smooth);
    auto none = hn::Eq(target, zero);
    if (c + lanes > n) {
      const VF left = hn::Set(df, static_cast<float>(n - c));
      none = hn::Or(none, hn::Ge(hn::Iota(df, 0), left));
    }
    if (hn::AllTrue(df, none)) {
      hn::StoreU(zero, df, y + c);
      continue;
    }
    const VF prob = hn::Mul(hn::LoadU(df, slope + c), per_total);
    VF not_prob = hn::Sub(one, prob);
    if (c <= row.top && row.top < c + lanes) {
      const auto is_top = hn::Eq(hn::Iota(df, 0), hn::Set(df, static_cast<float>(row.top - c)));
      not_prob = hn::IfThenElse(is_top, top, not_prob);
    }
    const VF log_prob = hn::Sub(hn::Sub(hn::LoadU(df, x + c), shift), log_total);
    const VF weight = hn::Mul(target, Power(df, not_prob, p.gamma));
    const VF ratio =
        hn::IfThenElse(hn::Eq(not_prob, zero), hn::Neg(one), hn::Div(log_prob, not_prob));
    VF h = hn::Mul(weight, hn::MulSub(hn::Mul(gamma, prob), ratio, one));
    h = hn::IfThenElse(none, zero, h);
    const VF term = hn::IfThenElse(none, zero, hn::Mul(weight, log_prob));
    hn::StoreU(h, df, y + c);
    loss -= hn::GetLane(hn::SumOfLanes(df, term));
    total_h += hn::GetLane(hn::SumOfLanes(df, h));
  }
  const VF alpha = hn::Set(df, p.alpha);
  const VF drop = hn::Set(df, static_cast<float>(total_h) * row.per_total);
  for (int64_t c = 0; c < n; c += lanes) {
    const VF difference = hn::NegMulAdd(hn::LoadU(df, slope + c), drop, hn::LoadU(df, y + c));
    hn::StoreU(hn::Mul(alpha, difference), df, slope + c);
  }
  return static_cast<float>(p.alpha * loss);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(SigmoidPiece);
HWY_EXPORT(SoftmaxRow);

void SigmoidFocalLoss(const FocalLossParams& params, const float* x, const float* y, int64_t n,
                      float* loss, float* slope) {
  HWY_DYNAMIC_DISPATCH(SigmoidPiece)(params, x, y, n, loss, slope);
}

float SoftmaxFocalLoss(const FocalLossParams& params, float* x, float* y, int64_t own, int64_t n,
                       float* slope) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxRow)(params, x, y, own, n, slope);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
