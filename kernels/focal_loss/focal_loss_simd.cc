// SigmoidFocalLoss and SoftmaxFocalLoss on the CPU: loss and derivative in one pass over memory, in
// vectors.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/focal_loss/focal_loss_checks.h"
#include "kernels/losses/loss_pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/focal_loss/focal_loss_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/focal_loss/focal_loss_formula.h"

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// `params` by value, as no store can change them then.
void SigmoidPiece(FocalLossParams params, const float* x, const float* y, int64_t n,
                  LossBuffers& to) {
  for (int64_t i = 0; i < n; i += Floats::Lanes()) {
    const auto term = sigmoid_focal(params, Floats::Load(x + i), Floats::Load(y + i));
    term.loss.Store(to.loss + i);
    term.slope.Store(to.slopes[0] + i);
  }
}

void SigmoidFocalLoss(CpuCall& call) {
  const FocalLossParams params = FocalParams(call, /*sigmoid=*/true);
  const FloatArray from = call.floats(0), targets = call.floats(1);
  ForLossPieces(call, params.reduce_last != 0, 1, [&](int64_t at, int64_t n, LossBuffers& to) {
    float *const x = to.inputs[0], *const y = to.inputs[1];
    std::fill(x + n, x + kLossPiece, 0.0f);
    std::fill(y + n, y + kLossPiece, 0.0f);
    std::memmove(x, from.Read(at, n, x), n * sizeof(float));
    std::memmove(y, targets.Read(at, n, y), n * sizeof(float));
    SigmoidPiece(params, x, y, n, to);
  });
}

// The parts of a row's softmax; the largest class's exponential, 1, would eat the digits of the
// others' sum and is left out of it.
struct Softmax {
  int64_t top;
  float shift, others, log_total, per_total;

  // z_loss L^2, and the part of its derivative beside p.
  float ZLoss(const FocalLossParams& p) const { return ZSlope(p) * (shift + log_total) / 2; }
  float ZSlope(const FocalLossParams& p) const { return 2 * p.z_loss * (shift + log_total); }
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

// Padding behind the classes of a row, a multiple of every vector.
constexpr int64_t kPadding = 64;

// Only class `own` has a target, of 1: h is 0 elsewhere.
HWY_INLINE float OneClass(const FocalLossParams& p, const Softmax& row, const float* x, int64_t own,
                          int64_t n, float* slope) {
  using One = Vector<hn::CappedTag<float, 1>>;
  const float prob = slope[own] * row.per_total;
  const float not_prob = own == row.top ? row.others * row.per_total : 1.0f - prob;
  const float log_prob = x[own] - row.shift - row.log_total;
  const auto term = softmax_focal(p.gamma, One(1.0f), One(prob), One(not_prob), One(log_prob));
  const float h = p.alpha * hn::GetLane(term.slope.v), z = row.ZSlope(p);
  for (int64_t c = 0; c < n; c += Floats::Lanes()) {
    (Floats::Load(slope + c) * ((z - h) * row.per_total)).Store(slope + c);
  }
  slope[own] = h * not_prob + z * prob;  // h - p h would cancel
  return p.alpha * hn::GetLane(term.loss.v) + row.ZLoss(p);
}

// One row of n classes in buffers of n + kPadding floats, all of which are used up. `y` are the
// targets before smoothing; where `own` is not -1 it is the only class with a target, there is no
// smoothing, and y is not read. Returns the loss.
float SoftmaxRow(const FocalLossParams& p, float* x, float* y, int64_t own, int64_t n,
                 float* slope) {
  const DF df;
  const int64_t lanes = Floats::Lanes();
  const Softmax row = MakeSoftmax(x, n, slope);
  if (own >= 0) return OneClass(p, row, x, own, n, slope);
  std::fill_n(y + n, lanes, 0.0f);
  const Floats zero = 0.0f, iota = Floats(hn::Iota(df, 0)), keep = 1.0f - p.label_smoothing;
  const Floats smooth = p.label_smoothing / static_cast<float>(n);
  double loss = 0.0, total_h = 0.0;
  for (int64_t c = 0; c < n; c += lanes) {
    const Floats target = fma(Floats::Load(y + c), keep, smooth);
    auto none = target == 0.0f;
    if (c + lanes > n) none = none || iota >= static_cast<float>(n - c);
    if (!any_of(!none)) {
      zero.Store(y + c);
      continue;
    }
    const Floats prob = Floats::Load(slope + c) * row.per_total;
    Floats not_prob = 1.0f - prob;
    if (c <= row.top && row.top < c + lanes) {
      not_prob =
          select(not_prob, row.others * row.per_total, iota == static_cast<float>(row.top - c));
    }
    const Floats log_prob = Floats::Load(x + c) - row.shift - row.log_total;
    const auto term = softmax_focal(p.gamma, target, prob, not_prob, log_prob);
    const Floats h = select(term.slope, zero, none);
    h.Store(y + c);
    loss += hn::GetLane(hn::SumOfLanes(df, select(term.loss, zero, none).v));
    total_h += hn::GetLane(hn::SumOfLanes(df, h.v));
  }
  const Floats drop = (p.alpha * static_cast<float>(total_h) - row.ZSlope(p)) * row.per_total;
  for (int64_t c = 0; c < n; c += lanes) {
    fnma(Floats::Load(slope + c), drop, p.alpha * Floats::Load(y + c)).Store(slope + c);
  }
  return static_cast<float>(p.alpha * loss) + row.ZLoss(p);
}

void SoftmaxFocalLoss(CpuCall& call) {
  const FocalLossParams params = FocalParams(call, /*sigmoid=*/false);
  const int64_t n_rows = call.Size("rows"), n_classes = call.Size("classes");
  const FloatArray from = call.floats(0);
  const MutableFloatArray to_loss = call.float_out(0), to_slope = call.float_out(1);
  const DType type = call.inputs[1].type;
  const bool sparse = type != DType::kFloat, with_slope = call.IsWanted(1);
  if (n_classes == 0) {
    for (int64_t r = 0; r < n_rows; ++r) StoreOne(to_loss, r, 0.0f);
    return;
  }
  if (type == DType::kInt32) {
    CheckFocalClasses(call, call.in<int32_t>(1));
  } else if (sparse) {
    CheckFocalClasses(call, call.in<int64_t>(1));
  }
  if (!call.shapes.ok()) return;
  const IgnoredClass ignored(call);
  const auto label = [&](int64_t r) -> int64_t {
    return type == DType::kInt32 ? call.in<int32_t>(1)[r] : call.in<int64_t>(1)[r];
  };
  call.ParallelFor(n_rows, 8 * n_classes, [&](int64_t begin, int64_t end) {
    const int64_t padded = n_classes + kPadding;
    std::vector<float> x(padded), y(padded), dx(padded);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * n_classes;
      if (sparse && ignored.Is(label(r))) {
        StoreOne(to_loss, r, 0.0f);
        std::fill(dx.begin(), dx.end(), 0.0f);
        if (with_slope) NarrowFloats(to_slope.type, dx.data(), n_classes, to_slope.At(at));
        continue;
      }
      WidenFloats(from.type, from.At(at), n_classes, x.data());
      int64_t own = -1;
      if (sparse && params.label_smoothing == 0.0f) {
        own = label(r);
      } else if (sparse) {
        std::fill_n(y.data(), n_classes, 0.0f);
        y[label(r)] = 1.0f;
      } else {
        std::copy_n(call.in<float>(1) + at, n_classes, y.data());
      }
      const float row_loss = SoftmaxRow(params, x.data(), y.data(), own, n_classes, dx.data());
      StoreOne(to_loss, r, row_loss);
      if (with_slope) NarrowFloats(to_slope.type, dx.data(), n_classes, to_slope.At(at));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("SigmoidFocalLoss", SigmoidFocalLoss);
SIMD_KERNEL("SoftmaxFocalLoss", SoftmaxFocalLoss);
}  // namespace metal_ops
#endif  // HWY_ONCE
