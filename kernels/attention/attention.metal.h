// The work of a thread that works alone in attention: a few queries, or keys, side by side in a
// processor's vectors, and some of the others at a time.

#ifndef METAL_OPS_KERNELS_ATTENTION_ATTENTION_METAL_H_
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_METAL_H_

#include <metal_stdlib>

#include "kernels/attention/attention_params.h"
#include "kernels/msl/formula.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

inline uint multiply_high(uint a, uint b) { return mulhi(a, b); }
#include "kernels/attention/attention_formula.h"

constexpr constant int kStep = ATTENTION_STEP;

// Rows of heads side by side: element i of lane l is at[i][l].
template <int kLanes>
struct Turned {
  float at[ATTENTION_MOST_SIZE][kLanes];
};
// Numbers of kStep rows and each of the lanes.
template <int kLanes>
struct Tile {
  float at[kStep][kLanes];
};

template <int kLanes, typename T>
inline void attention_read(device const T* rows, int n, uint size, float factor,
                           thread Turned<kLanes>& to) {
  for (uint i = 0; i < size; ++i) {
    for (int l = 0; l < kLanes; ++l) {
      to.at[i][l] = l < n ? float(rows[long(l) * size + i]) * factor : 0.0f;
    }
  }
}
template <int kLanes>
inline void attention_clear(uint size, thread Turned<kLanes>& to) {
  for (uint i = 0; i < size; ++i) {
    for (int l = 0; l < kLanes; ++l) to.at[i][l] = 0.0f;
  }
}
template <int kLanes, typename T>
inline void attention_write(thread const Turned<kLanes>& from, int n, uint size, float factor,
                            device T* rows) {
  for (int l = 0; l < n; ++l) {
    for (uint i = 0; i < size; ++i) rows[long(l) * size + i] = T(from.at[i][l] * factor);
  }
}

// to[r][l] = the product of row r and lane l; the last of the n rows stands for those behind it.
template <int kLanes, typename T>
inline void attention_multiply(device const T* rows, int n, uint size,
                               thread const Turned<kLanes>& lanes, thread Tile<kLanes>& to) {
  // A copy that is never indexed by a variable: it lives in registers.
  float local[kStep][kLanes] = {};
  device const T* from[kStep];
  for (int r = 0; r < kStep; ++r) from[r] = rows + long(min(r, n - 1)) * size;
  for (uint i = 0; i < size; ++i) {
    for (int r = 0; r < kStep; ++r) {
      const float value = float(from[r][i]);
      for (int l = 0; l < kLanes; ++l) local[r][l] = fma(value, lanes.at[i][l], local[r][l]);
    }
  }
  for (int r = 0; r < kStep; ++r) {
    for (int l = 0; l < kLanes; ++l) to.at[r][l] = local[r][l];
  }
}

// to += the sum over n rows of tile[r][l] times row r.
template <int kLanes, typename T>
inline void attention_add(device const T* rows, int n, uint size, thread const Tile<kLanes>& tile,
                          thread Turned<kLanes>& to) {
  for (uint i = 0; i < size; ++i) {
    float local[kLanes];
    for (int l = 0; l < kLanes; ++l) local[l] = to.at[i][l];
    for (int r = 0; r < n; ++r) {
      const float value = float(rows[long(r) * size + i]);
      for (int l = 0; l < kLanes; ++l) local[l] = fma(value, tile.at[r][l], local[l]);
    }
    for (int l = 0; l < kLanes; ++l) to.at[i][l] = local[l];
  }
}

// Where a tile lies: so many queries and keys from these on.
struct AttentionPlace {
  uint batch, head;
  long length;  // of the batch's keys
  long query, key;
  int queries, keys;
};
inline long attention_length_of(constant AttentionParams& params, device const int* lengths,
                                uint batch) {
  return params.use_lengths != 0 ? attention_length(params, lengths[batch]) : long(params.keys);
}
// Where keys that any of so many queries sees begin and end. Both ascend from query to query.
inline AttentionKeys attention_keys_of(constant AttentionParams& params, long length, long query,
                                       int n) {
  AttentionKeys seen = attention_keys(params, length, query);
  const AttentionKeys last = attention_keys(params, length, query + n - 1);
  seen.last = last.last;
  // Random numbers are made four keys at a time.
  seen.first = seen.first / 4 * 4;
  return seen;
}

// Whether each of so many queries sees each of so many keys, and there are as many.
inline bool attention_sees_all(constant AttentionParams& params, AttentionPlace at, int queries,
                               int keys) {
  if (at.queries != queries || at.keys != keys) return false;
  return params.use_mask == 0 && params.use_bias == 0 &&
         at.key >= attention_keys(params, at.length, at.query + queries - 1).first &&
         at.key + keys <= attention_keys(params, at.length, at.query).last;
}
// Whether any of the queries may see any of the keys.
inline bool attention_sees(constant AttentionParams& params, AttentionPlace at) {
  const AttentionKeys seen = attention_keys_of(params, at.length, at.query, at.queries);
  return seen.first < at.key + at.keys && seen.last > at.key;
}
// The score of one query and key of a place; -infinity where the query does not see the key.
template <typename T>
inline float attention_seen(constant AttentionParams& params, device const bool* mask,
                            device const T* bias, AttentionPlace at, int i, int j, float score) {
  const long query = at.query + i, key = at.key + j;
  const AttentionKeys seen = attention_keys(params, at.length, query);
  if (i >= at.queries || j >= at.keys || key < seen.first || key >= seen.last) return -INFINITY;
  if (params.use_mask != 0) {
    const constant AttentionSteps& steps = params.mask;
    const long from = at.batch * steps.batch + at.head * steps.head;
    if (!mask[from + query * steps.query + key * steps.key]) return -INFINITY;
  }
  if (params.use_bias != 0) {
    const constant AttentionSteps& steps = params.bias;
    const long from = at.batch * steps.batch + at.head * steps.head;
    score += float(bias[from + query * steps.query + key * steps.key]);
  }
  return score;
}

// Products that are scaled become scores, -infinity where a query does not see a key. One row per
// key and one lane per query, or the other way round.
template <bool kKeysInLanes, int kLanes, typename T>
inline void attention_scores(constant AttentionParams& params, device const bool* mask,
                             device const T* bias, AttentionPlace at, thread Tile<kLanes>& scores,
                             thread Tile<kLanes>& slopes) {
  if (params.soft_cap > 0) {
    for (int r = 0; r < kStep; ++r) {
      for (int l = 0; l < kLanes; ++l) {
        scores.at[r][l] = attention_capped(params.soft_cap, scores.at[r][l]);
        slopes.at[r][l] = attention_cap_slope(params.soft_cap, scores.at[r][l]);
      }
    }
  }
  if (attention_sees_all(params, at, kKeysInLanes ? kStep : kLanes,
                         kKeysInLanes ? kLanes : kStep)) {
    return;
  }
  for (int r = 0; r < kStep; ++r) {
    for (int l = 0; l < kLanes; ++l) {
      scores.at[r][l] = attention_seen(params, mask, bias, at, kKeysInLanes ? r : l,
                                       kKeysInLanes ? l : r, scores.at[r][l]);
    }
  }
}

// The weight of one query and key of a place, or its factor: 0 where it is dropped, else the value
// times 1 / (1 - rate).
inline float attention_dropped(constant AttentionParams& params, device const int* seed,
                               AttentionPlace at, int i, int j, float value) {
  const long query = at.query + i, key = at.key + j;
  const AttentionRandom<uint> random =
      attention_random(uint(key / 4), uint(query), at.batch * params.heads + at.head, 0u,
                       uint(seed[0]), uint(seed[1]));
  const uint low = key % 2 == 0 ? random.word[0] : random.word[1];
  const uint high = key % 2 == 0 ? random.word[2] : random.word[3];
  return (key % 4 < 2 ? low : high) < params.dropout ? 0.0f : value * params.dropout_scale;
}
template <bool kKeysInLanes, int kLanes>
inline void attention_drop(constant AttentionParams& params, device const int* seed,
                           AttentionPlace at, thread Tile<kLanes>& weights) {
  if (params.dropout == 0) return;
  for (int r = 0; r < kStep; ++r) {
    for (int l = 0; l < kLanes; ++l) {
      weights.at[r][l] = attention_dropped(params, seed, at, kKeysInLanes ? r : l,
                                           kKeysInLanes ? l : r, weights.at[r][l]);
    }
  }
}

// The start of the gradients of a head's keys.
template <typename T>
struct AttentionInputs {
  device const T* q;
  device const bool* mask;
  device const T* bias;
  device const int* seed;
  device const float* log_sum_exp;
  device const T* d_outputs;
  device const float* means;
};

// The head of k and v for a head of q, and where rows begin.
inline uint attention_kv_head(constant AttentionParams& params, uint head) {
  return head / (params.heads / params.kv_heads);
}
inline long attention_query_row(constant AttentionParams& params, AttentionPlace at) {
  return (long(at.batch) * params.heads + at.head) * params.queries + at.query;
}
inline long attention_key_row(constant AttentionParams& params, AttentionPlace at) {
  return (long(at.batch) * params.kv_heads + attention_kv_head(params, at.head)) * params.keys +
         at.key;
}

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_METAL_H_
