// The connectionist temporal classification loss and its gradient by the logits: A. Graves, "Supervised
// Sequence Labelling with Recurrent Neural Networks" (2012), section 7.4.

#include <metal_stdlib>

#include "device/kernels/nn/ctc_params.h"
#include "kernels/msl/exp_log.h"

using namespace metal;

inline float log_add(float a, float b) {
  const float large = max(a, b), small = min(a, b);
  return small == -INFINITY ? large : large + precise_log1p(exp(small - large));
}

// The logarithms of the classes' probabilities; the gradient before the labels count. Grid: batch,
// times.
kernel void ctc_softmax(device const float* logits [[buffer(0)]], device float* logs [[buffer(1)]],
                        device float* gradient [[buffer(2)]], constant uint* lengths [[buffer(3)]],
                        constant CtcParams& p [[buffer(4)]],
                        uint2 position [[thread_position_in_grid]]) {
  const ulong row = (ulong(position.y) * p.batch + position.x) * p.classes;
  if (position.y >= lengths[position.x]) {
    for (uint i = 0; i < p.classes; ++i) gradient[row + i] = 0.0f;
    return;
  }
  float largest = -INFINITY, sum = 0.0f;
  for (uint i = 0; i < p.classes; ++i) largest = max(largest, logits[row + i]);
  for (uint i = 0; i < p.classes; ++i) sum += exp(logits[row + i] - largest);
  const float log_sum = log(sum);
  for (uint i = 0; i < p.classes; ++i) {
    const float value = logits[row + i] - largest - log_sum;
    logs[row + i] = value;
    gradient[row + i] = exp(value);
  }
}

// The label of a state: between blanks.
inline uint ctc_label(constant int* labels, uint state, constant CtcParams& p) {
  return state % 2 == 0 ? p.blank : uint(labels[state / 2]);
}
// Whether the state before the one before may be left for this one.
inline bool ctc_skips(constant int* labels, uint state, constant CtcParams& p) {
  return state % 2 == 1 && state > 1 &&
         !(p.merge != 0 && labels[state / 2] == labels[state / 2 - 1]);
}

// `starts` [batch + 1]: where each sequence's labels begin. `forward` [batch, times, states] and
// `backward` [batch, 2, states] are memory to work in. Grid: CTC_THREADS a sequence.
kernel void ctc_paths(device const float* logs [[buffer(0)]], device float* gradient [[buffer(1)]],
                      device float* loss [[buffer(2)]], device float* forwards [[buffer(3)]],
                      device float* backwards [[buffer(4)]], constant int* all_labels [[buffer(5)]],
                      constant uint* starts [[buffer(6)]], constant uint* lengths [[buffer(7)]],
                      constant CtcParams& p [[buffer(8)]],
                      uint lane [[thread_position_in_threadgroup]],
                      uint b [[threadgroup_position_in_grid]]) {
  const uint times = lengths[b];
  constant int* const labels = all_labels + starts[b];
  const uint states = 2 * (starts[b + 1] - starts[b]) + 1;
  device float* const forward = forwards + ulong(b) * p.times * p.states;
  device float* const backward = backwards + ulong(b) * 2 * p.states;
  const ulong step = ulong(p.batch) * p.classes, first = ulong(b) * p.classes;
  if (times == 0) {
    if (lane == 0) loss[b] = 0.0f;
    return;
  }
  for (uint t = 0; t < times; ++t) {
    device float* const now = forward + ulong(t) * p.states;
    device const float* const before = now - p.states;
    for (uint u = lane; u < states; u += CTC_THREADS) {
      float sum = u < 2 && t == 0 ? 0.0f : -INFINITY;
      if (t > 0) {
        if (p.merge != 0 || u % 2 == 0) sum = before[u];
        if (u > 0) sum = log_add(sum, before[u - 1]);
        if (ctc_skips(labels, u, p)) sum = log_add(sum, before[u - 2]);
      }
      now[u] = sum + logs[t * step + first + ctc_label(labels, u, p)];
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
  device const float* const last = forward + ulong(times - 1) * p.states;
  const float total = states > 1 ? log_add(last[states - 1], last[states - 2]) : last[states - 1];
  // From here on the last row is written over.
  threadgroup_barrier(mem_flags::mem_device);
  if (lane == 0) loss[b] = -total;
  // Without a path there is nothing to subtract.
  if (total == -INFINITY) return;
  for (uint t = times; t-- > 0;) {
    device float* const now = backward + (t % 2) * p.states;
    device const float* const after = backward + ((t + 1) % 2) * p.states;
    device const float* const log_after = logs + (t + 1) * step + first;
    for (uint u = lane; u < states; u += CTC_THREADS) {
      float sum = t == times - 1 && u + 2 >= states ? 0.0f : -INFINITY;
      if (t < times - 1) {
        if (p.merge != 0 || u % 2 == 0) sum = after[u] + log_after[ctc_label(labels, u, p)];
        if (u + 1 < states) {
          sum = log_add(sum, after[u + 1] + log_after[ctc_label(labels, u + 1, p)]);
        }
        if (u + 2 < states && ctc_skips(labels, u + 2, p)) {
          sum = log_add(sum, after[u + 2] + log_after[ctc_label(labels, u + 2, p)]);
        }
      }
      now[u] = sum;
      forward[ulong(t) * p.states + u] = exp(forward[ulong(t) * p.states + u] + sum - total);
    }
    threadgroup_barrier(mem_flags::mem_device);
    // A class may be that of many states: one thread takes them in their order.
    if (lane == 0) {
      device float* const slopes = gradient + t * step + first;
      for (uint u = 0; u < states; ++u) {
        slopes[ctc_label(labels, u, p)] -= forward[ulong(t) * p.states + u];
      }
    }
  }
}
