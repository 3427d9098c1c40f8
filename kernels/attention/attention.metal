// The shader of ScaledDotProductAttention: threads that work alone, each with a few queries of a head,
// which go over the keys. On a processor those fill a vector; on a GPU a thread has one, and its
// neighbours read the same keys.

#include "kernels/attention/attention.metal.h"

template <typename T, int kLanes>
[[kernel, max_total_threads_per_threadgroup(32)]] void attention_forward(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device T* outputs [[buffer(7)]],
    device float* log_sum_exp [[buffer(8)]], constant AttentionParams& params [[buffer(9)]],
    uint3 position [[thread_position_in_grid]]) {
  AttentionPlace at;
  at.batch = position.z;
  at.head = position.y;
  at.length = attention_length_of(params, lengths, at.batch);
  at.query = long(position.x) * kLanes;
  at.queries = int(min(long(kLanes), long(params.queries) - at.query));
  at.key = 0;
  const long row = attention_query_row(params, at), key_row = attention_key_row(params, at);
  Turned<kLanes> lanes, sums;
  attention_read(q + row * params.size, at.queries, params.size, params.scale, lanes);
  attention_clear(params.value_size, sums);
  float most[kLanes], weight[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    most[l] = -INFINITY;
    weight[l] = 0.0f;
  }
  const AttentionKeys seen = attention_keys_of(params, at.length, at.query, at.queries);
  for (at.key = seen.first; at.key < seen.last; at.key += kStep) {
    at.keys = int(min(long(kStep), seen.last - at.key));
    Tile<kLanes> weights, slopes;
    attention_multiply(k + (key_row + at.key) * params.size, at.keys, params.size, lanes, weights);
    attention_scores<false>(params, mask, bias, at, weights, slopes);
    float shrink[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      float now = most[l];
      for (int r = 0; r < kStep; ++r) now = max(now, weights.at[r][l]);
      // For a query that has seen no key yet, all weights are 0.
      const float base = now == -INFINITY ? 0.0f : now;
      float sum = 0.0f;
      for (int r = 0; r < kStep; ++r) {
        weights.at[r][l] = precise_exp(weights.at[r][l] - base);
        sum += weights.at[r][l];
      }
      shrink[l] = precise_exp(most[l] - base);
      weight[l] = fma(weight[l], shrink[l], sum);
      most[l] = now;
    }
    bool shrinks = false;
    for (int l = 0; l < kLanes; ++l) shrinks = shrinks || shrink[l] != 1.0f;
    if (shrinks) {
      for (uint i = 0; i < params.value_size; ++i) {
        for (int l = 0; l < kLanes; ++l) sums.at[i][l] *= shrink[l];
      }
    }
    attention_drop<false>(params, seed, at, weights);
    attention_add(v + (key_row + at.key) * params.value_size, at.keys, params.value_size, weights,
                  sums);
  }
  for (int l = 0; l < at.queries; ++l) {
    const bool none = weight[l] == 0.0f;
    log_sum_exp[row + l] = none ? -INFINITY : most[l] + precise_log(weight[l]);
    const float factor = none ? 0.0f : 1.0f / weight[l];
    for (uint i = 0; i < params.value_size; ++i) {
      outputs[(row + l) * params.value_size + i] = T(sums.at[i][l] * factor);
    }
  }
}

#define INSTANTIATE(T)                                                      \
  INSTANTIATE_KERNEL("attention_forward_" #T "_1", attention_forward, T, 1) \
  INSTANTIATE_KERNEL("attention_forward_" #T "_16", attention_forward, T, ATTENTION_LANES)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
