// The shaders of attention's gradients where the threads of a simdgroup really run at once: the
// weights are computed again, by who owns the queries for theirs, and by who owns the keys.

#include "kernels/attention/attention_groups.metal.h"

// Products, not scaled, become weights, dropped as they were, and d the gradients of the scaled
// products, from those of the weights. Rows are queries and columns keys, or the other way round.
template <bool kKeysInRows, typename T, int kSize>
ROWS_INLINE inline void attention_again(
    constant AttentionParams& params, AttentionInputs<T> in, AttentionPlace at,
    thread const AttentionGroup<T, kSize>& group,
    thread float (&values)[AttentionGroup<T, kSize>::kLaneRows][AttentionGroup<T, kSize>::kOfRow],
    thread float (&d)[AttentionGroup<T, kSize>::kLaneRows][AttentionGroup<T, kSize>::kOfRow]) {
  using Group = AttentionGroup<T, kSize>;
  const bool all = attention_sees_all(params, at, kKeysInRows ? kColumns : kRows,
                                      kKeysInRows ? kRows : kColumns);
  const long of = attention_query_row(params, at);
  ROWS_UNROLL
  for (int r = 0; r < Group::kLaneRows; ++r) {
    ROWS_UNROLL
    for (int c = 0; c < Group::kOfRow; ++c) {
      const int i = kKeysInRows ? group.column(c) : group.row(r);
      const int j = kKeysInRows ? group.row(r) : group.column(c);
      float score = values[r][c] * params.scale, slope = 1.0f;
      if (params.soft_cap > 0) {
        score = attention_capped(params.soft_cap, score);
        slope = attention_cap_slope(params.soft_cap, score);
      }
      if (!all) score = attention_seen(params, in.mask, in.bias, at, i, j, score);
      const long query = of + min(i, at.queries - 1);
      const float base = in.log_sum_exp[query];
      const float weight = base == -INFINITY ? 0.0f : attention_exp<T>(score - base);
      values[r][c] = weight;
      if (params.dropout != 0) {
        values[r][c] = attention_dropped(params, in.seed, at, i, j, weight);
        d[r][c] = attention_dropped(params, in.seed, at, i, j, d[r][c]);
      }
      // Keys behind a sequence may be anything: their weights are 0, and so are their results.
      d[r][c] = weight == 0.0f ? 0.0f : weight * slope * (d[r][c] - in.means[query]) * params.scale;
    }
  }
}

template <typename T, int kSize>
[[kernel, max_total_threads_per_threadgroup(ATTENTION_GROUP_THREADS)]] void attention_groups_d_q(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float* log_sum_exp [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device const float* means [[buffer(9)]],
    device T* d_q [[buffer(10)]], constant AttentionParams& params [[buffer(11)]],
    uint3 position [[thread_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float stage[kSimdgroups * kRows * kColumns];
  using Group = AttentionGroup<T, kSize>;
  Group group;
  group.space = stage + simdgroup * kRows * kColumns;
  group.lane = lane;
  const AttentionInputs<T> in = {q, mask, bias, seed, log_sum_exp, d_outputs, means};
  AttentionPlace at;
  at.batch = position.z;
  at.head = position.y;
  at.length = attention_length_of(params, lengths, at.batch);
  at.query = long(position.x / 32) * kRows;
  at.queries = int(min(long(kRows), long(params.queries) - at.query));
  at.key = 0;
  const long row = attention_query_row(params, at), key_row = attention_key_row(params, at);
  typename Group::Rows16 queries[Group::kLeft], slopes[Group::kLeft];
  typename Group::Sums16 sums[Group::kSums];
  group.load(q + row * params.size, at.queries, params.size, queries);
  group.load(d_outputs + row * params.value_size, at.queries, params.value_size, slopes);
  group.clear(sums);
  const bool fills = attention_fills<T, kSize>(params, k, v);
  const AttentionKeys seen = attention_keys_of(params, at.length, at.query, at.queries);
  for (at.key = seen.first; at.key < seen.last; at.key += kColumns) {
    at.keys = int(min(long(kColumns), seen.last - at.key));
    device const T* const keys = k + (key_row + at.key) * params.size;
    device const T* const of_values = v + (key_row + at.key) * params.value_size;
    float values[Group::kLaneRows][Group::kOfRow], d[Group::kLaneRows][Group::kOfRow];
    if (fills && at.keys == kColumns) {
      group.template multiply<true>(queries, keys, at.keys, params.size, values);
      group.template multiply<true>(slopes, of_values, at.keys, params.value_size, d);
      attention_again<false>(params, in, at, group, values, d);
      group.template add<true>(d, keys, at.keys, params.size, sums);
    } else {
      group.template multiply<false>(queries, keys, at.keys, params.size, values);
      group.template multiply<false>(slopes, of_values, at.keys, params.value_size, d);
      attention_again<false>(params, in, at, group, values, d);
      group.template add<false>(d, keys, at.keys, params.size, sums);
    }
  }
  group.store(sums, d_q + row * params.size, at.queries, params.size);
}

template <typename T, int kSize>
[[kernel, max_total_threads_per_threadgroup(ATTENTION_GROUP_THREADS)]] void attention_groups_d_kv(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float* log_sum_exp [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device const float* means [[buffer(9)]],
    device T* d_k [[buffer(10)]], device T* d_v [[buffer(11)]],
    constant AttentionParams& params [[buffer(12)]], uint3 position [[thread_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float stage[kSimdgroups * kRows * kColumns];
  using Group = AttentionGroup<T, kSize>;
  Group group;
  group.space = stage + simdgroup * kRows * kColumns;
  group.lane = lane;
  const AttentionInputs<T> in = {q, mask, bias, seed, log_sum_exp, d_outputs, means};
  const uint sharing = params.heads / params.kv_heads;
  AttentionPlace at;
  at.batch = position.z;
  at.head = position.y * sharing;
  at.length = attention_length_of(params, lengths, at.batch);
  at.key = long(position.x / 32) * kRows;
  at.keys = int(min(long(kRows), long(params.keys) - at.key));
  at.query = 0;
  const long key_row = attention_key_row(params, at);
  typename Group::Rows16 keys[Group::kLeft], of_values[Group::kLeft];
  typename Group::Sums16 k_sums[Group::kSums], v_sums[Group::kSums];
  group.load(k + key_row * params.size, at.keys, params.size, keys);
  group.load(v + key_row * params.value_size, at.keys, params.value_size, of_values);
  group.clear(k_sums);
  group.clear(v_sums);
  const bool fills = attention_fills<T, kSize>(params, q, d_outputs);
  for (uint shared = 0; shared < sharing; ++shared, ++at.head) {
    for (at.query = 0; at.query < long(params.queries); at.query += kColumns) {
      at.queries = int(min(long(kColumns), long(params.queries) - at.query));
      if (!attention_sees(params, at)) continue;
      const long row = attention_query_row(params, at);
      device const T* const queries = q + row * params.size;
      device const T* const slopes = d_outputs + row * params.value_size;
      float values[Group::kLaneRows][Group::kOfRow], d[Group::kLaneRows][Group::kOfRow];
      if (fills && at.queries == kColumns) {
        group.template multiply<true>(keys, queries, at.queries, params.size, values);
        group.template multiply<true>(of_values, slopes, at.queries, params.value_size, d);
        attention_again<true>(params, in, at, group, values, d);
        group.template add<true>(d, queries, at.queries, params.size, k_sums);
        group.template add<true>(values, slopes, at.queries, params.value_size, v_sums);
      } else {
        group.template multiply<false>(keys, queries, at.queries, params.size, values);
        group.template multiply<false>(of_values, slopes, at.queries, params.value_size, d);
        attention_again<true>(params, in, at, group, values, d);
        group.template add<false>(d, queries, at.queries, params.size, k_sums);
        group.template add<false>(values, slopes, at.queries, params.value_size, v_sums);
      }
    }
  }
  group.store(k_sums, d_k + key_row * params.size, at.keys, params.size);
  group.store(v_sums, d_v + key_row * params.value_size, at.keys, params.value_size);
}

#define INSTANTIATE_SIZE(T, size)                                                         \
  INSTANTIATE_KERNEL("attention_groups_d_q_" #T "_" #size, attention_groups_d_q, T, size) \
  INSTANTIATE_KERNEL("attention_groups_d_kv_" #T "_" #size, attention_groups_d_kv, T, size)
// For larger heads a simdgroup has no room for operands and sums.
#define INSTANTIATE(T)    \
  INSTANTIATE_SIZE(T, 64) \
  INSTANTIATE_SIZE(T, 128)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
