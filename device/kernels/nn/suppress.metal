// Boxes of an image that overlap none of a higher score: greedily, the best of those left at a time.

#include <metal_stdlib>

#include "device/kernels/nn/suppress_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// Two corners each, in any order.
template <typename T>
inline float4 corners(device const T* boxes, uint i) {
  const float a = float(boxes[4 * ulong(i)]), b = float(boxes[4 * ulong(i) + 1]);
  const float c = float(boxes[4 * ulong(i) + 2]), d = float(boxes[4 * ulong(i) + 3]);
  return float4(min(a, c), min(b, d), max(a, c), max(b, d));
}

// The intersection by the union.
inline float overlap(float4 a, float4 b) {
  const float area_a = (a.z - a.x) * (a.w - a.y), area_b = (b.z - b.x) * (b.w - b.y);
  if (area_a <= 0.0f || area_b <= 0.0f) return 0.0f;
  const float height = max(min(a.z, b.z) - max(a.x, b.x), 0.0f);
  const float width = max(min(a.w, b.w) - max(a.y, b.y), 0.0f);
  return height * width / (area_a + area_b - height * width);
}

// `selected`: how many there are, then which. `gone` [boxes] is memory to work in. One group of
// SUPPRESS_THREADS.
template <typename T>
kernel void suppress_boxes(device const T* boxes [[buffer(0)]],
                           device const T* scores [[buffer(1)]], device uchar* gone [[buffer(2)]],
                           device int* selected [[buffer(3)]],
                           constant SuppressParams& p [[buffer(4)]],
                           uint lane [[thread_position_in_threadgroup]]) {
  threadgroup float best_scores[SUPPRESS_THREADS];
  threadgroup uint best_boxes[SUPPRESS_THREADS];
  threadgroup uint chosen[1];
  for (uint i = lane; i < p.boxes; i += SUPPRESS_THREADS) {
    gone[i] = float(scores[i]) > p.least_score ? 0 : 1;
  }
  uint count = 0;
  while (count < p.most) {
    const uint last = count > 0 ? chosen[0] : 0;
    const float4 last_box = count > 0 ? corners(boxes, last) : float4(0.0f);
    float best_score = 0.0f;
    uint best = p.boxes;
    for (uint i = lane; i < p.boxes; i += SUPPRESS_THREADS) {
      if (gone[i] != 0) continue;
      if (count > 0 &&
          (i == last || float(T(overlap(corners(boxes, i), last_box))) > p.threshold)) {
        gone[i] = 1;
        continue;
      }
      const float score = float(scores[i]);
      if (best == p.boxes || score > best_score) {
        best_score = score;
        best = i;
      }
    }
    best_scores[lane] = best_score;
    best_boxes[lane] = best;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) {
      for (uint k = 1; k < SUPPRESS_THREADS; ++k) {
        const uint other = best_boxes[k];
        if (other == p.boxes) continue;
        // With equal scores the first.
        if (best == p.boxes || best_scores[k] > best_score ||
            (best_scores[k] == best_score && other < best)) {
          best_score = best_scores[k];
          best = other;
        }
      }
      chosen[0] = best;
      if (best != p.boxes) selected[1 + count] = int(best);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (chosen[0] == p.boxes) break;
    ++count;
  }
  if (lane == 0) selected[0] = int(count);
}
INSTANTIATE_KERNEL("suppress_boxes_float", suppress_boxes, float)
INSTANTIATE_KERNEL("suppress_boxes_half", suppress_boxes, half)
