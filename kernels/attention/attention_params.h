// Scaled dot-product attention: sizes, and which keys a query sees, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_ATTENTION_ATTENTION_PARAMS_H_
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_PARAMS_H_

#include "kernels/msl/both.h"

#define ATTENTION_MOST_SIZE 256  // of a head

// The rows of a Metal thread that works alone (queries, or keys for their gradients), side by side,
// and the number of the others that it looks at together.
#define ATTENTION_LANES 16
#define ATTENTION_STEP 8

// Where simdgroups work together: threads of a group, and how many queries, or keys, a simdgroup has.
#define ATTENTION_GROUP_THREADS 128
#define ATTENTION_GROUP_ROWS 16

// Where four simdgroups multiply together: how many times four a threadgroup has, each of 64 queries,
// how many keys it looks at together, and of how many such steps keys and values are in threadgroup
// memory, and how many threadgroups the registers are to do for. For heads of at most 64 and 128
// elements, and of 64 in 32 KiB.
#define ATTENTION_WARPGROUPS_64 1, 128, 2, 3
#define ATTENTION_WARPGROUPS_128 1, 64, 2, 2
#define ATTENTION_WARPGROUPS_SMALL 1, 32, 2, 1
// Two-byte elements of queries, keys and values.
#define ATTENTION_WARPGROUP_BYTES(size, warpgroups, keys, stages) \
  (2 * (size) * (64 * (warpgroups) + 2 * (stages) * (keys)))

// For the gradients of 64 keys, and of 64 queries: how many of the others they look at together, of how many such steps
// these are in threadgroup memory, and how many threadgroups the registers are to do for.
#define ATTENTION_GRADIENT_KV_64 128, 2, 2
#define ATTENTION_GRADIENT_Q_64 64, 2, 2
#define ATTENTION_GRADIENT_KV_128 64, 2, 2
#define ATTENTION_GRADIENT_Q_128 64, 2, 2
#define ATTENTION_GRADIENT_KV_SMALL 16, 2, 1
#define ATTENTION_GRADIENT_Q_SMALL 16, 2, 1
// Two-byte elements, and of each query of a step two numbers.
#define ATTENTION_GRADIENT_KV_BYTES(size, queries, stages) \
  (4 * (size) * (64 + (stages) * (queries)) + 8 * (stages) * (queries))
#define ATTENTION_GRADIENT_Q_BYTES(size, keys, stages) (4 * (size) * (stages) * (keys))
// Where twice four simdgroups have 128 keys and sum up the queries' gradients, too, in turns, beside four that do
// not multiply: the same two numbers.
#define ATTENTION_GRADIENT_TURNS_THREADS 384
#define ATTENTION_GRADIENT_TURNS_64 128, 2
#define ATTENTION_GRADIENT_TURNS_128 64, 2
#define ATTENTION_GRADIENT_TURNS_BYTES(size, queries, stages) \
  (4 * (size) * (128 + ((stages) + 2) * (queries)) + (256 + 8 * (stages)) * (queries))
// Queries of a head are as many as a multiple of this, where their gradients begin.
#define ATTENTION_GRADIENT_PIECE 128

// Steps through an array [batch, heads, queries, keys], 0 where it is broadcast.
struct AttentionSteps {
  int64_t batch, head, query, key;
};

// The number of parts that the keys of a launch are shared out into, and the start of their
// counters: the one that finds `begin` + parts - 1 is the last and joins the parts. 0: another
// launch does.
struct AttentionSplits {
  uint32_t parts, begin;
};
static_assert(sizeof(AttentionSplits) == 8, "host and shader must agree");

struct AttentionParams {
  AttentionSteps mask, bias;
  uint32_t batch, heads, kv_heads, queries, keys, size, value_size;
  int32_t left, right;  // keys beside the query's own that it sees, -1: all
  float scale, soft_cap;
  float dropout_scale;  // 1 / (1 - rate)
  uint32_t dropout;     // a random number below it drops a weight; 0: none are made
  uint32_t use_mask, use_bias, use_lengths;
  uint32_t bias_batch, bias_heads, bias_queries, bias_keys;  // the bias' shape
};
static_assert(sizeof(AttentionParams) == 144, "host and shader must agree");

// The keys that a query sees: [first, last) of those of its batch, of which there are `length`. The
// last query's own is the last key.
struct AttentionKeys {
  int64_t first, last;
};
inline AttentionKeys attention_keys(METAL_OPS_CONSTANT const AttentionParams& p, int64_t length,
                                    int64_t query) {
  const int64_t own = query + length - int64_t(p.queries);
  AttentionKeys seen = {0, length};
  if (p.left >= 0 && own - p.left > 0) seen.first = own - p.left;
  if (p.right >= 0 && own + p.right + 1 < length) seen.last = own + p.right + 1;
  if (seen.last < seen.first) seen.last = seen.first;
  return seen;
}
inline int64_t attention_length(METAL_OPS_CONSTANT const AttentionParams& p, int32_t given) {
  return given < 0 ? 0 : given > int64_t(p.keys) ? int64_t(p.keys) : int64_t(given);
}

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_PARAMS_H_
