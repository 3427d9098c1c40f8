// The shaders of attention's gradients: threads that work alone and compute the weights again.
// Queries get sums over the keys, keys get sums over the queries, each by the thread that owns it.

#include "kernels/attention/attention.metal.h"

// For each query, the product of its output and that one's gradient.
template <typename T>
[[kernel]] void attention_means(device const T* outputs [[buffer(0)]],
                                device const T* d_outputs [[buffer(1)]],
                                device float* means [[buffer(2)]],
                                constant AttentionParams& params [[buffer(3)]],
                                uint3 position [[thread_position_in_grid]]) {
  AttentionPlace at;
  at.batch = position.z;
  at.head = position.y;
  at.query = position.x;
  const long row = attention_query_row(params, at);
  float sum = 0.0f;
  for (uint i = 0; i < params.value_size; ++i) {
    const long from = row * params.value_size + i;
    sum = fma(float(outputs[from]), float(d_outputs[from]), sum);
  }
  means[row] = sum;
}

// The weight of a score; 0 for all of a query that sees no key.
inline float attention_weight(float score, float log_sum_exp) {
  return log_sum_exp == -INFINITY ? 0.0f : precise_exp(score - log_sum_exp);
}

template <typename T, int kLanes>
[[kernel, max_total_threads_per_threadgroup(32)]] void attention_d_q(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float* log_sum_exp [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device const float* means [[buffer(9)]],
    device T* d_q [[buffer(10)]], constant AttentionParams& params [[buffer(11)]],
    uint3 position [[thread_position_in_grid]]) {
  AttentionPlace at;
  at.batch = position.z;
  at.head = position.y;
  at.length = attention_length_of(params, lengths, at.batch);
  at.query = long(position.x) * kLanes;
  at.queries = int(min(long(kLanes), long(params.queries) - at.query));
  at.key = 0;
  const long row = attention_query_row(params, at), key_row = attention_key_row(params, at);
  Turned<kLanes> lanes, into, sums;
  attention_read(q + row * params.size, at.queries, params.size, params.scale, lanes);
  attention_read(d_outputs + row * params.value_size, at.queries, params.value_size, 1.0f, into);
  attention_clear(params.size, sums);
  float base[kLanes], middle[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    base[l] = l < at.queries ? log_sum_exp[row + l] : 0.0f;
    middle[l] = l < at.queries ? means[row + l] : 0.0f;
  }
  const AttentionKeys seen = attention_keys_of(params, at.length, at.query, at.queries);
  for (at.key = seen.first; at.key < seen.last; at.key += kStep) {
    at.keys = int(min(long(kStep), seen.last - at.key));
    Tile<kLanes> scores, d, slopes;
    attention_multiply(k + (key_row + at.key) * params.size, at.keys, params.size, lanes, scores);
    attention_scores<false>(params, mask, bias, at, scores, slopes);
    attention_multiply(v + (key_row + at.key) * params.value_size, at.keys, params.value_size, into,
                       d);
    attention_drop<false>(params, seed, at, d);
    for (int r = 0; r < kStep; ++r) {
      for (int l = 0; l < kLanes; ++l) {
        d.at[r][l] = attention_weight(scores.at[r][l], base[l]) * (d.at[r][l] - middle[l]);
        if (params.soft_cap > 0) d.at[r][l] *= slopes.at[r][l];
      }
    }
    attention_add(k + (key_row + at.key) * params.size, at.keys, params.size, d, sums);
  }
  attention_write(sums, at.queries, params.size, params.scale, d_q + row * params.size);
}

// For some queries and the keys in the lanes, whose rows of k, scaled, and v are given: the weights
// before dropping, and d loss / d (product, scaled), or score.
template <int kLanes, typename T>
inline void attention_slopes(constant AttentionParams& params, AttentionInputs<T> in,
                             AttentionPlace at, bool before_cap, thread const Turned<kLanes>& keys,
                             thread const Turned<kLanes>& values, thread Tile<kLanes>& weights,
                             thread Tile<kLanes>& d) {
  const long row = attention_query_row(params, at);
  Tile<kLanes> slopes;
  attention_multiply(in.q + row * params.size, at.queries, params.size, keys, weights);
  attention_scores<true>(params, in.mask, in.bias, at, weights, slopes);
  attention_multiply(in.d_outputs + row * params.value_size, at.queries, params.value_size, values,
                     d);
  attention_drop<true>(params, in.seed, at, d);
  for (int r = 0; r < kStep; ++r) {
    const long of = row + min(r, at.queries - 1);
    const float base = in.log_sum_exp[of], middle = in.means[of];
    for (int l = 0; l < kLanes; ++l) {
      weights.at[r][l] = attention_weight(weights.at[r][l], base);
      // Keys behind a sequence may be anything: their weights are 0, and so are their results.
      const float w = weights.at[r][l];
      d.at[r][l] = w == 0.0f ? 0.0f : w * (d.at[r][l] - middle);
      if (before_cap && params.soft_cap > 0) d.at[r][l] *= slopes.at[r][l];
    }
  }
}

template <typename T, int kLanes>
[[kernel, max_total_threads_per_threadgroup(32)]] void attention_d_kv(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float* log_sum_exp [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device const float* means [[buffer(9)]],
    device T* d_k [[buffer(10)]], device T* d_v [[buffer(11)]],
    constant AttentionParams& params [[buffer(12)]], uint3 position [[thread_position_in_grid]]) {
  AttentionInputs<T> in;
  in.q = q;
  in.mask = mask;
  in.bias = bias;
  in.seed = seed;
  in.log_sum_exp = log_sum_exp;
  in.d_outputs = d_outputs;
  in.means = means;
  AttentionPlace at;
  const uint sharing = params.heads / params.kv_heads;
  at.batch = position.z;
  at.head = position.y * sharing;
  at.length = attention_length_of(params, lengths, at.batch);
  at.key = long(position.x) * kLanes;
  at.keys = int(min(long(kLanes), long(params.keys) - at.key));
  const long key_row = attention_key_row(params, at);
  Turned<kLanes> keys, values, k_sums, v_sums;
  attention_read(k + key_row * params.size, at.keys, params.size, params.scale, keys);
  attention_read(v + key_row * params.value_size, at.keys, params.value_size, 1.0f, values);
  attention_clear(params.size, k_sums);
  attention_clear(params.value_size, v_sums);
  for (uint shared = 0; shared < sharing; ++shared, ++at.head) {
    for (at.query = 0; at.query < long(params.queries); at.query += kStep) {
      at.queries = int(min(long(kStep), long(params.queries) - at.query));
      if (!attention_sees(params, at)) continue;
      Tile<kLanes> weights, d;
      attention_slopes(params, in, at, true, keys, values, weights, d);
      attention_drop<true>(params, seed, at, weights);
      const long row = attention_query_row(params, at);
      attention_add(q + row * params.size, at.queries, params.size, d, k_sums);
      attention_add(d_outputs + row * params.value_size, at.queries, params.value_size, weights,
                    v_sums);
    }
  }
  attention_write(k_sums, at.keys, params.size, params.scale, d_k + key_row * params.size);
  attention_write(v_sums, at.keys, params.value_size, 1.0f, d_v + key_row * params.value_size);
}

// A thread owns some keys of some rows of the bias, or all where it has one for all.
template <typename T, int kLanes>
[[kernel, max_total_threads_per_threadgroup(32)]] void attention_d_bias(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float* log_sum_exp [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device const float* means [[buffer(9)]],
    device T* d_bias [[buffer(10)]], constant AttentionParams& params [[buffer(11)]],
    uint3 position [[thread_position_in_grid]]) {
  AttentionInputs<T> in;
  in.q = q;
  in.mask = mask;
  in.bias = bias;
  in.seed = seed;
  in.log_sum_exp = log_sum_exp;
  in.d_outputs = d_outputs;
  in.means = means;
  const bool all_keys = params.bias_keys == 1, all_queries = params.bias_queries == 1;
  const long first_key = long(position.x) * kLanes, first_query = long(position.y) * kStep;
  const uint head_of = position.z % params.bias_heads, batch_of = position.z / params.bias_heads;
  Tile<kLanes> sums;
  for (int r = 0; r < kStep; ++r) {
    for (int l = 0; l < kLanes; ++l) sums.at[r][l] = 0.0f;
  }
  AttentionPlace at;
  const long key_end = all_keys ? long(params.keys) : min(long(params.keys), first_key + kLanes);
  const long query_end =
      all_queries ? long(params.queries) : min(long(params.queries), first_query + kStep);
  for (at.batch = batch_of; at.batch < params.batch; at.batch += params.bias_batch) {
    at.length = attention_length_of(params, lengths, at.batch);
    for (at.head = head_of; at.head < params.heads; at.head += params.bias_heads) {
      for (at.key = first_key; at.key < key_end; at.key += kLanes) {
        at.keys = int(min(long(kLanes), long(params.keys) - at.key));
        const long key_row = attention_key_row(params, at);
        Turned<kLanes> keys, values;
        attention_read(k + key_row * params.size, at.keys, params.size, params.scale, keys);
        attention_read(v + key_row * params.value_size, at.keys, params.value_size, 1.0f, values);
        for (at.query = first_query; at.query < query_end; at.query += kStep) {
          at.queries = int(min(long(kStep), long(params.queries) - at.query));
          if (!attention_sees(params, at)) continue;
          Tile<kLanes> weights, d;
          attention_slopes(params, in, at, false, keys, values, weights, d);
          for (int r = 0; r < kStep; ++r) {
            for (int l = 0; l < kLanes; ++l) sums.at[r][l] += d.at[r][l];
          }
        }
      }
    }
  }
  device T* const to = d_bias + long(position.z) * params.bias_queries * params.bias_keys;
  if (all_keys) {
    for (int r = 0; r < kStep; ++r) {
      for (int l = 1; l < kLanes; ++l) sums.at[r][0] += sums.at[r][l];
    }
  }
  if (all_queries) {
    for (int l = 0; l < kLanes; ++l) {
      for (int r = 1; r < kStep; ++r) sums.at[0][l] += sums.at[r][l];
    }
  }
  const int rows = all_queries ? 1 : int(min(long(kStep), long(params.queries) - first_query));
  const int columns = all_keys ? 1 : int(min(long(kLanes), long(params.keys) - first_key));
  for (int r = 0; r < rows; ++r) {
    for (int l = 0; l < columns; ++l) {
      to[(first_query + r) * params.bias_keys + first_key + l] = T(sums.at[r][l]);
    }
  }
}

#define INSTANTIATE_LANES(T, lanes)                                             \
  INSTANTIATE_KERNEL("attention_d_q_" #T "_" #lanes, attention_d_q, T, lanes)   \
  INSTANTIATE_KERNEL("attention_d_kv_" #T "_" #lanes, attention_d_kv, T, lanes) \
  INSTANTIATE_KERNEL("attention_d_bias_" #T "_" #lanes, attention_d_bias, T, lanes)
#define INSTANTIATE(T)                                          \
  INSTANTIATE_KERNEL("attention_means_" #T, attention_means, T) \
  INSTANTIATE_LANES(T, 1)                                       \
  INSTANTIATE_LANES(T, 16)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
