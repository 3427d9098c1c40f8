// The shaders of ScaledDotProductAttention where the threads of a simdgroup really run at once.

#include "kernels/attention/attention_join.metal.h"

// A simdgroup's values of its queries.
template <typename T, int kSize>
struct AttentionRows {
  using Group = AttentionGroup<T, kSize>;
  typename Group::Rows16 queries[Group::kLeft];
  typename Group::Sums16 sums[Group::kSums];
  float most[Group::kLaneRows], weight[Group::kLaneRows];  // the lane's part of the weights

  // Goes over some keys.
  template <bool kWhole>
  ROWS_INLINE void step(constant AttentionParams& params, device const T* k, device const T* v,
                        device const bool* mask, device const T* bias, device const int* seed,
                        AttentionPlace at, long key_row, thread Group& group) thread {
    float values[Group::kLaneRows][Group::kOfRow], shrink[Group::kLaneRows];
    group.template multiply<kWhole>(queries, k + (key_row + at.key) * params.size, at.keys,
                                    params.size, values);
    const bool all = attention_sees_all(params, at, kRows, kColumns);
    bool shrinks = false;
    ROWS_UNROLL
    for (int r = 0; r < Group::kLaneRows; ++r) {
      float now = -INFINITY;
      ROWS_UNROLL
      for (int j = 0; j < Group::kOfRow; ++j) {
        float score = values[r][j] * params.scale;
        if (params.soft_cap > 0) score = attention_capped(params.soft_cap, score);
        if (!all) {
          score = attention_seen(params, mask, bias, at, group.row(r), group.column(j), score);
        }
        values[r][j] = score;
        now = max(now, score);
      }
      now = max(most[r], Group::Ops::row_max(now));
      // For a query that has seen no key yet, all weights are 0.
      const float base = now == -INFINITY ? 0.0f : now;
      float sum = 0.0f;
      ROWS_UNROLL
      for (int j = 0; j < Group::kOfRow; ++j) {
        values[r][j] = attention_exp<T>(values[r][j] - base);
        sum += values[r][j];
      }
      shrink[r] = attention_exp<T>(most[r] - base);
      shrinks = shrinks || shrink[r] != 1.0f;
      weight[r] = fma(weight[r], shrink[r], sum);
      most[r] = now;
      if (params.dropout != 0) {
        ROWS_UNROLL
        for (int j = 0; j < Group::kOfRow; ++j) {
          values[r][j] =
              attention_dropped(params, seed, at, group.row(r), group.column(j), values[r][j]);
        }
      }
    }
    if (simd_any(shrinks)) group.scale(sums, shrink);
    group.template add<kWhole>(values, v + (key_row + at.key) * params.value_size, at.keys,
                               params.value_size, sums);
  }
};

template <typename T, int kSize>
[[kernel, max_total_threads_per_threadgroup(ATTENTION_GROUP_THREADS)]] void attention_groups(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device T* outputs [[buffer(7)]],
    device float* log_sum_exp [[buffer(8)]], device float* part_outputs [[buffer(9)]],
    device float* part_log_sum_exp [[buffer(10)]], constant AttentionParams& params [[buffer(11)]],
    constant AttentionSplits& splits [[buffer(12)]], device atomic_uint* counters [[buffer(13)]],
    uint3 position [[thread_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float stage[kSimdgroups * kRows * kColumns];
  using Group = AttentionGroup<T, kSize>;
  Group group;
  group.space = stage + simdgroup * kRows * kColumns;
  group.lane = lane;
  const uint split = position.z % splits.parts;
  AttentionPlace at;
  at.batch = position.z / splits.parts;
  at.head = position.y;
  at.length = attention_length_of(params, lengths, at.batch);
  at.query = long(position.x / 32) * kRows;
  at.queries = int(min(long(kRows), long(params.queries) - at.query));
  at.key = 0;
  const long row = attention_query_row(params, at), key_row = attention_key_row(params, at);

  AttentionRows<T, kSize> rows;
  group.load(q + row * params.size, at.queries, params.size, rows.queries);
  group.clear(rows.sums);
  ROWS_UNROLL
  for (int r = 0; r < Group::kLaneRows; ++r) {
    rows.most[r] = -INFINITY;
    rows.weight[r] = 0.0f;
  }
  AttentionKeys seen = attention_keys_of(params, at.length, at.query, at.queries);
  const long blocks = (seen.last - seen.first + kColumns - 1) / kColumns;
  const long share = (blocks + splits.parts - 1) / splits.parts * kColumns;
  seen.first += long(split) * share;
  seen.last = min(seen.last, seen.first + share);
  at.key = seen.first;
  if (attention_fills<T, kSize>(params, k, v)) {
    at.keys = kColumns;
    for (; at.key + kColumns <= seen.last; at.key += kColumns) {
      rows.template step<true>(params, k, v, mask, bias, seed, at, key_row, group);
    }
  }
  for (; at.key < seen.last; at.key += kColumns) {
    at.keys = int(min(long(kColumns), seen.last - at.key));
    rows.template step<false>(params, k, v, mask, bias, seed, at, key_row, group);
  }

  const long part_row = long(split) * attention_rows(params) + row;
  float factor[Group::kLaneRows];
  ROWS_UNROLL
  for (int r = 0; r < Group::kLaneRows; ++r) {
    const float sum = Group::Ops::row_sum(rows.weight[r]);
    const bool none = sum == 0.0f;
    factor[r] = none ? 0.0f : 1.0f / sum;
    if (group.row(r) >= at.queries || group.column(0) != 0) continue;
    const float total = none ? -INFINITY : rows.most[r] + precise_log(sum);
    if (splits.parts == 1) {
      log_sum_exp[row + group.row(r)] = total;
    } else {
      part_log_sum_exp[part_row + group.row(r)] = total;
    }
  }
  group.scale(rows.sums, factor);
  if (splits.parts == 1) {
    group.store(rows.sums, outputs + row * params.value_size, at.queries, params.value_size);
  } else {
    group.store_wide(rows.sums, part_outputs + part_row * params.value_size, at.queries,
                     params.value_size);
  }

  if (splits.begin == 0) return;
  const uint pieces = (params.queries + kRows - 1) / kRows;
  device atomic_uint* const counter =
      counters + (at.batch * params.heads + at.head) * pieces + position.x / 32;
  simdgroup_barrier(mem_flags::mem_device);
  const bool last = lane == 0 && attention_is_last(counter, splits);
  if (!simd_any(last)) return;
  simdgroup_barrier(mem_flags::mem_device);
  const AttentionParts<T> parts = {part_outputs, part_log_sum_exp,       outputs,
                                   log_sum_exp,  attention_rows(params), params.value_size,
                                   splits.parts};
  for (int r = 0; r < at.queries; ++r) parts.template join<kSize>(row + r, lane);
}

// Where it cannot be done by who is the last. A simdgroup has a row.
template <typename T>
[[kernel]] void attention_join(device const float* part_outputs [[buffer(0)]],
                               device const float* part_log_sum_exp [[buffer(1)]],
                               device T* outputs [[buffer(2)]],
                               device float* log_sum_exp [[buffer(3)]],
                               constant AttentionParams& params [[buffer(4)]],
                               constant AttentionSplits& splits [[buffer(5)]],
                               uint3 position [[thread_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
  const AttentionParts<T> parts = {part_outputs, part_log_sum_exp,       outputs,
                                   log_sum_exp,  attention_rows(params), params.value_size,
                                   splits.parts};
  const long row = long(position.z) * params.heads * params.queries + position.y;
  parts.template join<ATTENTION_MOST_SIZE>(row, lane);
}

#define INSTANTIATE(T)                                                        \
  INSTANTIATE_KERNEL("attention_groups_" #T "_64", attention_groups, T, 64)   \
  INSTANTIATE_KERNEL("attention_groups_" #T "_128", attention_groups, T, 128) \
  INSTANTIATE_KERNEL("attention_groups_" #T "_256", attention_groups, T, 256) \
  INSTANTIATE_KERNEL("attention_join_" #T, attention_join, T)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
