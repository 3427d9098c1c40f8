// SigmoidFocalLoss and SoftmaxFocalLoss: the loss and its derivative in one pass over memory.

#include <metal_stdlib>

#include "kernels/focal_loss/focal_loss_params.h"
#include "kernels/losses/row_means.metal.h"
#include "kernels/msl/formula.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#include "kernels/focal_loss/focal_loss_formula.h"

// Grid: the parts of the rows.
template <typename T>
kernel void sigmoid_focal_loss(device const T* logits [[buffer(0)]],
                               device const T* targets [[buffer(1)]],
                               device T* losses [[buffer(2)]], device float* parts [[buffer(3)]],
                               device T* slopes [[buffer(4)]],
                               constant FocalLossParams& params [[buffer(5)]],
                               constant RowMeansParams& rows [[buffer(6)]],
                               uint2 position [[thread_position_in_grid]],
                               uint2 threads [[threads_per_grid]]) {
  const RowPart at = row_part(rows, flat_index(position, threads));
  if (at.row >= rows.n_rows) return;
  CarefulSum sum = careful_sum_zero();
  for (ulong i = at.begin; i < at.end; i += rows.n_parts) {
    const FocalTerm<float> term = sigmoid_focal(params, float(logits[i]), float(targets[i]));
    careful_add(sum, term.loss);
    slopes[i] = T(term.slope * rows.weight);
  }
  store_row_part(rows, at, sum, losses, parts);
}

// Sums and maxima over the threads of a row: one thread, or a SIMD group. The order of a SIMD
// group's sum is the hardware's, and always the same.
template <int kLanes>
inline float row_sum(float x) {
  return simd_sum(x);
}
template <>
inline float row_sum<1>(float x) {
  return x;
}
template <int kLanes>
inline float row_max(float x) {
  return simd_max(x);
}
template <>
inline float row_max<1>(float x) {
  return x;
}
template <int kLanes>
inline uint row_min(uint x) {
  return simd_min(x);
}
template <>
inline uint row_min<1>(uint x) {
  return x;
}

// One row as all its threads know it.
struct SoftmaxRow {
  uint top;         // class of the largest logit
  float shift;      // that logit
  float others;     // sum of e^(x - shift) over the other classes
  float log_total;  // log of the sum over all
  float per_total;
};

// p and 1 - p of class c, without cancelling.
inline float2 softmax_prob(thread const SoftmaxRow& row, uint c, float x) {
  const float prob = (c == row.top ? 1.0f : precise::exp(x - row.shift)) * row.per_total;
  return float2(prob, c == row.top ? row.others * row.per_total : 1.0f - prob);
}

inline FocalTerm<float> softmax_focal(thread const SoftmaxRow& row, float gamma, uint c, float x,
                                      float target) {
  const float2 prob = softmax_prob(row, c, x);
  return softmax_focal(gamma, target, prob.x, prob.y, x - row.shift - row.log_total);
}

// The targets of a row: one value per class, or the class's number.
struct SoftTargets {
  device const float* values;
  float of(uint c) const { return values[c]; }
};
struct OneTarget {
  uint label;
  float of(uint c) const { return c == label ? 1.0f : 0.0f; }
};

// `own` is the only class whose target is above 0, where there is one; else n_classes.
template <typename T, typename Targets, int kLanes>
inline void softmax_focal_row(constant SoftmaxFocalParams& params, device const T* logits,
                              Targets targets, uint own, device T* loss, device T* slopes,
                              uint lane) {
  const uint n = params.n_classes;
  SoftmaxRow row;
  row.shift = -INFINITY;
  row.top = n;
  // NaN is never the largest, and spoils the sum below.
  for (uint c = lane; c < n; c += kLanes) {
    const float x = float(logits[c]);
    if (x > row.shift || (row.top == n && x == x)) {
      row.shift = x;
      row.top = c;
    }
  }
  const float largest = row_max<kLanes>(row.shift);
  row.top = row_min<kLanes>(row.shift == largest ? row.top : n);
  row.shift = largest;
  CarefulSum others = careful_sum_zero();
  for (uint c = lane; c < n; c += kLanes) {
    if (c != row.top) careful_add(others, precise::exp(float(logits[c]) - row.shift));
  }
  row.others = row_sum<kLanes>(careful_result(others));
  // Infinite logits have no probabilities.
  if (!isfinite(row.shift)) row.others = NAN;
  row.log_total = precise_log1p(row.others);
  row.per_total = 1.0f / (1.0f + row.others);

  const float smooth = params.loss.label_smoothing / float(n);
  const float keep = 1.0f - params.loss.label_smoothing;
  CarefulSum sum_loss = careful_sum_zero(), sum_h = careful_sum_zero();
  for (uint c = lane; c < n; c += kLanes) {
    const float target = fma(targets.of(c), keep, smooth);
    if (target == 0.0f) continue;
    const FocalTerm<float> term =
        softmax_focal(row, params.loss.gamma, c, float(logits[c]), target);
    careful_add(sum_loss, term.loss);
    careful_add(sum_h, term.slope);
  }
  const float total_loss = row_sum<kLanes>(careful_result(sum_loss));
  const float total_h = row_sum<kLanes>(careful_result(sum_h));
  const float log_sum = n == 0 ? 0.0f : row.shift + row.log_total;
  const float z_slope = 2.0f * params.loss.z_loss * log_sum;
  for (uint c = lane; c < n; c += kLanes) {
    const float x = float(logits[c]), target = fma(targets.of(c), keep, smooth);
    const float2 prob = softmax_prob(row, c, x);
    float slope = total_h * prob.y;  // h (1 - p), where h - p h would cancel
    if (c != own) {
      const FocalTerm<float> term = softmax_focal(row, params.loss.gamma, c, x, target);
      slope = fma(-prob.x, total_h, target == 0.0f ? 0.0f : term.slope);
    }
    slopes[c] = T(fma(params.loss.alpha, slope, z_slope * prob.x));
  }
  if (lane == 0) *loss = T(fma(params.loss.alpha, total_loss, z_slope * log_sum * 0.5f));
}

// Grid: kLanes x rows, so that a SIMD group has a row; or rows.
template <typename T, int kLanes>
kernel void softmax_focal_loss(device const T* logits [[buffer(0)]],
                               device const float* targets [[buffer(1)]],
                               device T* losses [[buffer(2)]], device T* slopes [[buffer(3)]],
                               constant SoftmaxFocalParams& params [[buffer(4)]],
                               uint2 position [[thread_position_in_grid]]) {
  const ulong row = kLanes == 1 ? position.x : position.y;
  const ulong first = row * params.n_classes;
  SoftTargets soft;
  soft.values = targets + first;
  softmax_focal_row<T, SoftTargets, kLanes>(params, logits + first, soft, params.n_classes,
                                            losses + row, slopes + first,
                                            kLanes == 1 ? 0 : position.x);
}

template <typename T, int kLanes>
kernel void softmax_focal_loss_sparse(device const T* logits [[buffer(0)]],
                                      device const uint* labels [[buffer(1)]],
                                      device T* losses [[buffer(2)]],
                                      device T* slopes [[buffer(3)]],
                                      constant SoftmaxFocalParams& params [[buffer(4)]],
                                      uint2 position [[thread_position_in_grid]]) {
  const ulong row = kLanes == 1 ? position.x : position.y;
  const ulong first = row * params.n_classes;
  OneTarget one;
  one.label = labels[row];
  if (one.label == FOCAL_LOSS_IGNORED) {
    const uint lane = kLanes == 1 ? 0 : position.x;
    for (uint c = lane; c < params.n_classes; c += kLanes) slopes[first + c] = T(0.0f);
    if (lane == 0) losses[row] = T(0.0f);
    return;
  }
  softmax_focal_row<T, OneTarget, kLanes>(
      params, logits + first, one,
      params.loss.label_smoothing == 0.0f ? one.label : params.n_classes, losses + row,
      slopes + first, kLanes == 1 ? 0 : position.x);
}

#define INSTANTIATE_TYPE(T)                                                            \
  INSTANTIATE_KERNEL("sigmoid_focal_loss_" #T, sigmoid_focal_loss, T)                  \
  INSTANTIATE_KERNEL("softmax_focal_loss_" #T, softmax_focal_loss, T, 1)               \
  INSTANTIATE_KERNEL("softmax_focal_loss_shared_" #T, softmax_focal_loss, T, 32)       \
  INSTANTIATE_KERNEL("softmax_focal_loss_sparse_" #T, softmax_focal_loss_sparse, T, 1) \
  INSTANTIATE_KERNEL("softmax_focal_loss_sparse_shared_" #T, softmax_focal_loss_sparse, T, 32)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
