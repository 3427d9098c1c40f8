// The work of four simdgroups together for attention's gradients: weights again, of products by the matrix unit, and the
// gradients of scores.

#ifndef METAL_OPS_KERNELS_ATTENTION_ATTENTION_WARPGROUPS_GRADIENT_METAL_H_
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_WARPGROUPS_GRADIENT_METAL_H_

#include "kernels/attention/attention_groups.metal.h"
#include "kernels/gemm/tile_copies.metal.h"
#include "kernels/gemm/warpgroup_tiles.metal.h"

// Neither mask nor bias, cap nor dropout.
constant bool attention_plain [[function_constant(0)]];

constexpr constant float kLog2E = 1.44269504f;

// Queries of a head as the gradients' shaders have them: so many, and none behind the last.
inline long attention_padded(constant AttentionParams& params) {
  return (long(params.queries) + ATTENTION_GRADIENT_PIECE - 1) / ATTENTION_GRADIENT_PIECE *
         ATTENTION_GRADIENT_PIECE;
}
inline long attention_padded_row(constant AttentionParams& params, AttentionPlace at) {
  return (long(at.batch) * params.heads + at.head) * attention_padded(params) + at.query;
}

template <typename T>
ROWS_INLINE inline GemmLinesOf<T> attention_lines(device const T* at, long n, uint size) {
  return {at, long(size), n, long(size),
          ((reinterpret_cast<ulong>(at) & 15) | (size % (16 / sizeof(T)))) == 0};
}

// The ranges of a place's queries and keys.
template <typename T>
struct AttentionAgain {
  AttentionPlace at;
  device const bool* mask;
  device const T* bias;
  device const int* seed;
  int between, least, most;  // of keys before a query's own: seen from least to most
  bool all;                  // whether each sees each

  ROWS_INLINE void place(constant AttentionParams& params, int queries, int keys) thread {
    constexpr long kMost = 0x7fff0000;
    const long from = at.key - at.query - at.length + long(params.queries);
    between = int(min(max(from, -kMost), kMost));
    least = params.left < 0 ? -0x7fffffff : -params.left;
    most = params.right < 0 ? 0x7fffffff : params.right;
    all = (attention_plain || (params.use_mask == 0 && params.use_bias == 0)) &&
          at.queries == queries && at.keys == keys && between - (queries - 1) >= least &&
          between + keys - 1 <= most;
  }
  ROWS_INLINE bool sees(int i, int j) thread const {
    const int apart = between + j - i;
    return i < at.queries && j < at.keys && apart >= least && apart <= most;
  }
  ROWS_INLINE long steps_to(constant AttentionSteps& steps, int i, int j) thread const {
    return at.batch * steps.batch + at.head * steps.head + (at.query + i) * steps.query +
           (at.key + j) * steps.key;
  }

  // A product becomes a weight; base: the logarithm of the query's sum, of 2. slope: what a cap leaves of the gradient.
  template <bool kAll>
  ROWS_INLINE float weight(constant AttentionParams& params, int i, int j, float base,
                           float product, thread float& slope) thread const {
    if (attention_plain) {
      const float w = attention_exp2(fma(product, params.scale * kLog2E, -base));
      return kAll || sees(i, j) ? w : 0.0f;
    }
    float score = product * params.scale;
    if (params.soft_cap > 0) {
      score = attention_capped(params.soft_cap, score);
      slope = attention_cap_slope(params.soft_cap, score);
    }
    if (!kAll) {
      if (!sees(i, j)) return 0.0f;
      if (params.use_mask != 0 && !mask[steps_to(params.mask, i, j)]) return 0.0f;
      if (params.use_bias != 0) score += float(bias[steps_to(params.bias, i, j)]);
    }
    return attention_exp2(fma(score, kLog2E, -base));
  }
  // The gradient of the score, by 1 / scale, of that of the weight.
  template <bool kAll>
  ROWS_INLINE float of_score(constant AttentionParams& params, int i, int j, float mean, float w,
                             float slope, float d) thread const {
    if (attention_plain) return kAll || w != 0.0f ? w * (d - mean) : 0.0f;
    if (params.dropout != 0) d = attention_dropped(params, seed, at, i, j, d);
    // Keys behind a sequence may be anything: their weights are 0, and so are the results.
    return w == 0.0f ? 0.0f : w * slope * (d - mean);
  }
};

// Lines from one on as panels: of few threads, one panel after the other, as a thread's places repeat after so many
// lines only.
template <typename T, int kLines, int kSize, int kThreads>
struct PanelsCopy {
  using Tile = Panels<kLines, kSize>;
  static constexpr constant int kLength = kThreads / (kSize / 8) % Tile::kSpread == 0 ? kSize : 64;
  using Copy = GemmTileCopy<kLines, kLength, kThreads, true, T, Panels<kLines, kLength>>;
  static_assert(kThreads / (kLength / 8) % Tile::kSpread == 0, "places repeat");

  ROWS_INLINE static void bring(GemmLinesOf<T> from, long first, threadgroup T* to, uint thread_) {
#pragma clang loop unroll(disable)
    for (int along = 0; along < kSize; along += kLength) {
      Copy copy(from, first, along, thread_);
      copy.next(to + along / 64 * Tile::kPanel);
    }
  }
};

// The queries' tiles on their way: of each head that shares the keys, from the first query that sees some to the last,
// or, kBack, the other way.
template <typename T, int kSize, int kQueries, int kStages, int kThreads, bool kBack>
struct AttentionQueries {
  using Tile = Panels<kQueries, kSize>;
  using Copy = PanelsCopy<T, kQueries, kSize, kThreads>;
  static constexpr constant int kTile = Tile::kElements;

  device const T* q;
  device const T* d_outputs;
  device const float2* pairs;
  AttentionPlace at;  // of the next
  long first, last;
  int steps;

  // For a head: none where there are no keys.
  ROWS_INLINE void place(constant AttentionParams& params, AttentionPlace keys) thread {
    at = keys;
    const long later = at.key - at.length + long(params.queries);
    first = params.right < 0 ? 0l : max(later - params.right, 0l);
    first = first / kQueries * kQueries;
    last = long(params.queries);
    if (params.left >= 0) last = min(last, later + at.keys + params.left);
    const long blocks = at.keys == 0 ? 0l : max(last - first + kQueries - 1, 0l) / kQueries;
    last = first + blocks * kQueries;
    steps = int(blocks) * int(params.heads / params.kv_heads);
    at.query = begin();
  }
  ROWS_INLINE long begin() thread const { return kBack ? last - kQueries : first; }
  // The place behind it.
  ROWS_INLINE void advance(thread AttentionPlace& place) thread const {
    place.query += kBack ? -kQueries : kQueries;
    if (kBack ? place.query >= first : place.query < last) return;
    place.query = begin();
    ++place.head;
  }

  ROWS_INLINE void next(constant AttentionParams& params, threadgroup T* tiles,
                        threadgroup float4* pairs_of, int stage, uint thread_) thread {
    AttentionPlace head = at;
    head.query = 0;
    const long row = attention_query_row(params, head);
    Copy::bring(attention_lines(q + row * params.size, long(params.queries), params.size), at.query,
                tiles + 2 * stage * kTile, thread_);
    Copy::bring(attention_lines(d_outputs + row * params.value_size, long(params.queries),
                                params.value_size),
                at.query, tiles + (2 * stage + 1) * kTile, thread_);
    if (thread_ < kQueries / 2) {
      gemm_copy_16(pairs_of + stage * kQueries / 2 + thread_,
                   pairs + attention_padded_row(params, at) + 2 * thread_, true);
    }
    advance(at);
  }
};

// Products of 16 keys, the rows, and a step's queries: weights, and the gradients of the scores.
template <typename T, int kQueries>
struct AttentionOfKeys {
  using Ops = Rows<T>;
  static constexpr constant int kLaneRows = Ops::kLaneRows, kOfRow = kQueries / 2 / kLaneRows;

  float values[kLaneRows][kOfRow], d[kLaneRows][kOfRow], slopes[kLaneRows][kOfRow];

  template <bool kAll>
  ROWS_INLINE void weigh(constant AttentionParams& params, AttentionAgain<T> own,
                         threadgroup const float4* pairs, int first, uint lane) thread {
    ROWS_UNROLL
    for (int c = 0; c < kOfRow; c += 2) {
      const int i = Ops::template column<kQueries / 8>(c, lane);
      const float4 of = pairs[i / 2];
      ROWS_UNROLL
      for (int r = 0; r < kLaneRows; ++r) {
        const int j = Ops::row(r, lane) + first;
        slopes[r][c] = slopes[r][c + 1] = 1.0f;
        values[r][c] = own.template weight<kAll>(params, i, j, of.x, values[r][c], slopes[r][c]);
        values[r][c + 1] =
            own.template weight<kAll>(params, i + 1, j, of.z, values[r][c + 1], slopes[r][c + 1]);
      }
    }
  }
  // Behind that, weights are dropped for the values.
  template <bool kAll>
  ROWS_INLINE void slope(constant AttentionParams& params, AttentionAgain<T> own,
                         threadgroup const float4* pairs, int first, uint lane) thread {
    ROWS_UNROLL
    for (int c = 0; c < kOfRow; c += 2) {
      const int i = Ops::template column<kQueries / 8>(c, lane);
      const float4 of = pairs[i / 2];
      ROWS_UNROLL
      for (int r = 0; r < kLaneRows; ++r) {
        const int j = Ops::row(r, lane) + first;
        d[r][c] =
            own.template of_score<kAll>(params, i, j, of.y, values[r][c], slopes[r][c], d[r][c]);
        d[r][c + 1] = own.template of_score<kAll>(params, i + 1, j, of.w, values[r][c + 1],
                                                  slopes[r][c + 1], d[r][c + 1]);
      }
    }
    if (attention_plain || params.dropout == 0) return;
    ROWS_UNROLL
    for (int i = 0; i < kLaneRows * kOfRow; ++i) {
      const int r = i / kOfRow, c = i % kOfRow;
      values[r][c] =
          attention_dropped(params, own.seed, own.at, Ops::template column<kQueries / 8>(c, lane),
                            Ops::row(r, lane) + first, values[r][c]);
    }
  }
};

// Products of 16 queries, the rows, and a step's keys: the same.
template <typename T, int kKeys>
struct AttentionOfQueries {
  using Ops = Rows<T>;
  static constexpr constant int kLaneRows = Ops::kLaneRows, kOfRow = kKeys / 2 / kLaneRows;

  float values[kLaneRows][kOfRow], d[kLaneRows][kOfRow], slopes[kLaneRows][kOfRow];

  template <bool kAll>
  ROWS_INLINE void weigh(constant AttentionParams& params, AttentionAgain<T> own,
                         thread const float (&base)[kLaneRows], int first, uint lane) thread {
    ROWS_UNROLL
    for (int i = 0; i < kLaneRows * kOfRow; ++i) {
      const int r = i / kOfRow, c = i % kOfRow;
      slopes[r][c] = 1.0f;
      values[r][c] = own.template weight<kAll>(params, Ops::row(r, lane) + first,
                                               Ops::template column<kKeys / 8>(c, lane), base[r],
                                               values[r][c], slopes[r][c]);
    }
  }
  template <bool kAll>
  ROWS_INLINE void slope(constant AttentionParams& params, AttentionAgain<T> own,
                         thread const float (&mean)[kLaneRows], int first, uint lane) thread {
    ROWS_UNROLL
    for (int i = 0; i < kLaneRows * kOfRow; ++i) {
      const int r = i / kOfRow, c = i % kOfRow;
      d[r][c] = own.template of_score<kAll>(params, Ops::row(r, lane) + first,
                                            Ops::template column<kKeys / 8>(c, lane), mean[r],
                                            values[r][c], slopes[r][c], d[r][c]);
    }
  }
};

// Writes a simdgroup's sums of 16 rows, of which there are n, from an element on.
template <typename T, int kSums>
ROWS_INLINE inline void attention_store(thread typename Rows<T>::Sums16 (&sums)[kSums],
                                        float factor, device T* to, uint size, int from, int n,
                                        threadgroup float* space, uint lane) {
  using Ops = Rows<T>;
  float factors[Ops::kLaneRows];
  ROWS_UNROLL
  for (int r = 0; r < Ops::kLaneRows; ++r) factors[r] = factor;
  if (factor != 1.0f) Ops::scale(sums, factors, space, lane);
  ROWS_UNROLL
  for (int i = 0; i < kSums; ++i) {
    const int left = int(size) - from - 8 * i;
    if (n > 0 && left > 0) {
      Ops::store(sums[i], Piece<T>{to + from + 8 * i, long(size), n, left}, space, lane);
    }
  }
}

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_WARPGROUPS_GRADIENT_METAL_H_
