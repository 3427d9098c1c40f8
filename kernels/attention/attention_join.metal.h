// The parts' results for the keys become one, weighted by the sums of the parts' exponentials.

#ifndef METAL_OPS_KERNELS_ATTENTION_ATTENTION_JOIN_METAL_H_
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_JOIN_METAL_H_

#include "kernels/attention/attention_groups.metal.h"
#include "kernels/msl/fence.h"

// A processor has too few registers.
#if defined(__METAL_CPU__)
#define JOIN_UNROLL
#else
#define JOIN_UNROLL _Pragma("clang loop unroll(full)")
#endif

// The rows of all batches and heads. The parts' rows lie part after part.
inline long attention_rows(constant AttentionParams& params) {
  return long(params.batch) * params.heads * params.queries;
}

template <typename T>
struct AttentionParts {
  device const float* part_outputs;
  device const float* part_log_sum_exp;
  device T* outputs;
  device float* log_sum_exp;
  long rows;
  uint size, parts;

  // A row, of at most kSize elements, by a simdgroup. Sums run from the first part to the last,
  // whichever simdgroup joins them.
  template <int kSize>
  ROWS_INLINE void join(long row, uint lane) thread const {
    float most = -INFINITY;
    for (uint s = lane; s < parts; s += 32) most = max(most, part_log_sum_exp[s * rows + row]);
    most = simd_max(most);
    const float base = most == -INFINITY ? 0.0f : most;
    float weight = 0.0f, sums[kSize / 32] = {};
    // So many parts at a time that their loads are under way together: one after the other they
    // would take as long as all that was before.
    constexpr int kAtOnce = 8;
    for (uint first = 0; first < parts; first += kAtOnce) {
      float its[kAtOnce], values[kAtOnce][kSize / 32];
      JOIN_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const long at = min(first + i, parts - 1) * rows + row;
        its[i] = part_log_sum_exp[at];
        JOIN_UNROLL
        for (int j = 0; j < kSize / 32; ++j) {
          values[i][j] = part_outputs[at * size + min(lane + 32 * j, size - 1)];
        }
      }
      // No branches, which loads would wait behind.
      JOIN_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const bool there = first + i < parts;
        const float w = select(0.0f, precise_exp(its[i] - base), there);
        weight += w;
        JOIN_UNROLL
        for (int j = 0; j < kSize / 32; ++j) {
          sums[j] = fma(w, select(0.0f, values[i][j], there), sums[j]);
        }
      }
    }
    const bool none = weight == 0.0f;
    for (int j = 0; j < kSize / 32; ++j) {
      const uint at = lane + 32 * j;
      if (at < size) outputs[row * size + at] = T(none ? 0.0f : sums[j] / weight);
    }
    if (lane == 0) log_sum_exp[row] = none ? -INFINITY : most + precise_log(weight);
  }
};

// Whether this thread is the last of those that come here, one of each part; then it sees all that
// they saw. Counters have the numbers that earlier launches left, below `begin` even if one has
// failed halfway.
inline bool attention_is_last(device atomic_uint* counter, constant AttentionSplits& splits) {
  fence_device();
  atomic_fetch_max_explicit(counter, splits.begin, memory_order_relaxed);
  const uint before = atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
  if (before != splits.begin + splits.parts - 1) return false;
  fence_device();
  return true;
}

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_JOIN_METAL_H_
