// SigmoidFocalLoss and SoftmaxFocalLoss: the loss and its derivative in one pass over memory.
// focal_loss_params.h has the formulas; names are those of the CPU's focal_loss_simd.cc.

#include <metal_stdlib>

#include "kernels/focal_loss/focal_loss_params.h"
#include "kernels/losses/row_means.metal.h"
#include "kernels/msl/exp_log.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// q^gamma for q >= 0. gamma = 0: 1; 0^gamma = 0 otherwise.
inline float focal_power(float q, float gamma) {
  if (q != q) return q;
  if (gamma == 0.0f) return 1.0f;
  if (gamma == 1.0f) return q;
  if (gamma == 2.0f) return q * q;
  // Subnormal numbers, which the device may take for 0, are as good as 0.
  return q < FLT_MIN ? 0.0f : precise::exp(gamma * precise::log(q));
}

// loss and d loss / d x.
inline float2 sigmoid_focal(constant FocalLossParams& p, float x, float hard) {
  if (x != x) return float2(x, x);
  const float y = fma(p.label_smoothing, 0.5f - hard, hard);  // y (1 - s) + s / 2
  const float not_y = 1.0f - y;
  const float e = precise::exp(-fabs(x));
  const float large = 1.0f / (1.0f + e), small = e * large;
  const float prob = x >= 0.0f ? large : small;      // sigmoid(x)
  const float not_prob = x >= 0.0f ? small : large;  // sigmoid(-x)
  const float q = fma(y, not_prob, not_y * prob);
  const float entropy = fma(-x, y, max(x, 0.0f)) + precise_log1p(e);
  const float weight = p.balanced != 0 ? fma(y, p.alpha, not_y * (1.0f - p.alpha)) : 1.0f;
  const float weighted = weight * focal_power(q, p.gamma);
  // q vanishes only with p (1 - p), and then so does q^gamma (p - y).
  const float ratio = q == 0.0f ? 0.0f : (not_y - y) * prob * not_prob / q;
  // y (p - 1) + (1 - y) p = p - y, without cancelling where p is near y
  const float error = fma(not_y, prob, -(y * not_prob));
  return float2(weighted * entropy, weighted * fma(p.gamma * entropy, ratio, error));
}

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
    const float2 value = sigmoid_focal(params, float(logits[i]), float(targets[i]));
    careful_add(sum, value.x);
    slopes[i] = T(value.y * rows.weight);
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

// A class's term of the loss, and h: both over alpha.
inline float2 softmax_focal(thread const SoftmaxRow& row, float gamma, uint c, float x,
                            float target) {
  const float2 prob = softmax_prob(row, c, x);
  const float log_prob = x - row.shift - row.log_total;
  const float focus = focal_power(prob.y, gamma);
  // gamma p (1 - p)^(gamma - 1) log p: log p vanishes with 1 - p.
  const float ratio = prob.y == 0.0f ? -1.0f : log_prob / prob.y;
  return float2(-target * focus * log_prob, target * focus * fma(gamma * prob.x, ratio, -1.0f));
}

// The targets of a row: one value a class, or the class's number.
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
  // Of infinite logits there are no probabilities.
  if (!isfinite(row.shift)) row.others = NAN;
  row.log_total = precise_log1p(row.others);
  row.per_total = 1.0f / (1.0f + row.others);

  const float smooth = params.loss.label_smoothing / float(n);
  const float keep = 1.0f - params.loss.label_smoothing;
  CarefulSum sum_loss = careful_sum_zero(), sum_h = careful_sum_zero();
  for (uint c = lane; c < n; c += kLanes) {
    const float target = fma(targets.of(c), keep, smooth);
    if (target == 0.0f) continue;
    const float2 term = softmax_focal(row, params.loss.gamma, c, float(logits[c]), target);
    careful_add(sum_loss, term.x);
    careful_add(sum_h, term.y);
  }
  const float total_loss = row_sum<kLanes>(careful_result(sum_loss));
  const float total_h = row_sum<kLanes>(careful_result(sum_h));
  for (uint c = lane; c < n; c += kLanes) {
    const float x = float(logits[c]), target = fma(targets.of(c), keep, smooth);
    const float2 prob = softmax_prob(row, c, x);
    float slope = total_h * prob.y;  // h (1 - p), where h - p h would cancel
    if (c != own) {
      const float h = target == 0.0f ? 0.0f : softmax_focal(row, params.loss.gamma, c, x, target).y;
      slope = fma(-prob.x, total_h, h);
    }
    slopes[c] = T(params.loss.alpha * slope);
  }
  if (lane == 0) *loss = T(params.loss.alpha * total_loss);
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
INSTANTIATE_TYPE(bfloat)
