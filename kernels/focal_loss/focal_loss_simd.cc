// The focal losses and their derivatives, vectorised: see focal_loss_params.h for the formulas.

#include "kernels/focal_loss/focal_loss_simd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/focal_loss/focal_loss_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/common/math-inl.h"

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

float SoftmaxRow(const FocalLossParams& p, const float* x, const float* y, int64_t label, int64_t n,
                 float* slope) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const hn::CappedTag<float, 1> one;
  // The largest, and which: its exponential is 1 and left out of the sum, whose digits it would
  // eat.
  int64_t top = 0;
  for (int64_t c = 1; c < n; ++c) {
    if (x[c] > x[top] || x[top] != x[top]) top = c;
  }
  const float shift = x[top];
  auto others = hn::Zero(df);
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    const auto e = SafeExp(df, hn::Sub(hn::LoadU(df, x + c), hn::Set(df, shift)));
    hn::StoreU(e, df, slope + c);
  }
  for (; c < n; ++c) {
    const auto e = SafeExp(one, hn::Sub(hn::LoadU(one, x + c), hn::Set(one, shift)));
    hn::StoreU(e, one, slope + c);
  }
  const float top_value = slope[top];  // 1, or NaN
  slope[top] = 0.0f;
  for (c = 0; c + lanes <= n; c += lanes) others = hn::Add(others, hn::LoadU(df, slope + c));
  float sum = hn::GetLane(hn::SumOfLanes(df, others));
  for (; c < n; ++c) sum += slope[c];
  slope[top] = top_value;
  const float total = top_value + sum, log_total = std::log1p(sum), per_total = 1.0f / total;
  const float smooth = p.label_smoothing / static_cast<float>(n);
  const float keep = 1.0f - p.label_smoothing;

  double loss = 0.0, sum_h = 0.0;
  // Few targets are more than 0: without smoothing one pass over them does.
  const auto term = [&](int64_t k, float target) HWY_ATTR {
    const float prob = slope[k] * per_total;
    const float not_prob = k == top ? sum * per_total : 1.0f - prob;
    const float log_prob = x[k] - shift - log_total;
    const float focus = hn::GetLane(Power(one, hn::Set(one, not_prob), p.gamma));
    loss -= target * focus * log_prob;
    // gamma p (1 - p)^(gamma - 1) log p: log p vanishes with 1 - p.
    const float ratio = not_prob == 0.0f ? -1.0f : log_prob / not_prob;
    const float h = target * focus * (p.gamma * prob * ratio - 1.0f);
    sum_h += h;
    return h;
  };
  if (y == nullptr && smooth == 0.0f) {
    const float h = p.alpha * term(label, 1.0f), each = -h * per_total;
    // h (1 - p) for the label itself, where h - p h would cancel.
    const float own = label == top ? sum * per_total : 1.0f - slope[label] * per_total;
    for (int64_t k = 0; k < n; ++k) slope[k] *= each;
    slope[label] = h * own;
    return static_cast<float>(p.alpha * loss);
  }
  // The probabilities are needed until the sum of h is known, so h is worked out twice.
  for (int64_t k = 0; k < n; ++k) {
    const float hard = y == nullptr ? (k == label ? 1.0f : 0.0f) : y[k];
    const float target = hard * keep + smooth;
    if (target != 0.0f) term(k, target);
  }
  const double total_h = sum_h;
  const double total_loss = loss;
  for (int64_t k = 0; k < n; ++k) {
    const float hard = y == nullptr ? (k == label ? 1.0f : 0.0f) : y[k];
    const float target = hard * keep + smooth;
    const float prob = slope[k] * per_total;
    const float h = target != 0.0f ? term(k, target) : 0.0f;
    slope[k] = static_cast<float>(p.alpha * (h - prob * total_h));
  }
  return static_cast<float>(p.alpha * total_loss);
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

float SoftmaxFocalLoss(const FocalLossParams& params, const float* x, const float* y, int64_t label,
                       int64_t n, float* slope) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxRow)(params, x, y, label, n, slope);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
