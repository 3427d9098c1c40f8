// The shader of ScaledDotProductAttention for many queries, where four simdgroups multiply together:
// keys and values come into threadgroup memory while those before are multiplied.

#include "kernels/attention/attention_join.metal.h"
#include "kernels/gemm/tile_copies.metal.h"
#include "kernels/gemm/warpgroup_tiles.metal.h"

// Neither mask nor bias, cap nor dropout.
constant bool attention_plain [[function_constant(0)]];

constexpr constant float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

template <typename T, int kSize, int kWarpgroups, int kKeys, int kStages>
struct AttentionWarpgroup {
  using Ops = Rows<T>;
  static constexpr constant int kThreads = 128 * kWarpgroups, kQueries = 64 * kWarpgroups;
  using Scores = WarpgroupProduct<T, kQueries, kKeys, kSize, true, true>;
  using Values = WarpgroupProduct<T, 64, kSize, kKeys, true, false>;
  static constexpr constant int kTileQ = Scores::A::kElements, kTileK = Scores::B::kElements,
                                kSums = kSize / 8;
  static constexpr constant int kLaneRows = Ops::kLaneRows, kOfRow = kKeys / 2 / kLaneRows;
  template <int kLines, typename Places>
  using Copy = GemmTileCopy<kLines, kSize, kThreads, true, T, Places>;

  typename Ops::Sums16 sums[kSums];
  float most[kLaneRows], weight[kLaneRows];  // scores by log2(e); the lane's part of the weights
  threadgroup float* space;
  uint lane;

  ROWS_INLINE int row(int r) thread const { return Ops::row(r, lane); }
  ROWS_INLINE int column(int j) thread const { return Ops::template column<kKeys / 8>(j, lane); }
  ROWS_INLINE static GemmLinesOf<T> lines(device const T* at, long n, uint size) {
    return {at, long(size), n, long(size),
            ((reinterpret_cast<ulong>(at) & 15) | (size % (16 / sizeof(T)))) == 0};
  }

  // Scores of a query: -infinity of keys that it does not see.
  ROWS_INLINE void hide(constant AttentionParams& params, device const bool* mask,
                        device const T* bias, AttentionPlace at, int of,
                        thread float (&scores)[kOfRow]) thread {
    const AttentionKeys seen = attention_keys(params, at.length, at.query + of);
    const int first = int(min(seen.first - at.key, long(kKeys)));
    const int last = of < at.queries ? int(max(min(seen.last - at.key, long(at.keys)), 0l)) : 0;
    if (!attention_plain && params.use_bias != 0) {
      const constant AttentionSteps& steps = params.bias;
      device const T* const from = bias + at.batch * steps.batch + at.head * steps.head +
                                   (at.query + of) * steps.query + at.key * steps.key;
      ROWS_UNROLL
      for (int j = 0; j < kOfRow; ++j) {
        if (column(j) < last) {
          scores[j] = fma(float(from[column(j) * steps.key]), kLog2E, scores[j]);
        }
      }
    }
    if (!attention_plain && params.use_mask != 0) {
      const constant AttentionSteps& steps = params.mask;
      device const bool* const from = mask + at.batch * steps.batch + at.head * steps.head +
                                      (at.query + of) * steps.query + at.key * steps.key;
      ROWS_UNROLL
      for (int j = 0; j < kOfRow; ++j) {
        if (column(j) < last && !from[column(j) * steps.key]) scores[j] = -INFINITY;
      }
    }
    ROWS_UNROLL
    for (int j = 0; j < kOfRow; ++j) {
      if (column(j) < first || column(j) >= last) scores[j] = -INFINITY;
    }
  }

  // The keys' weights from products; earlier sums shrink.
  ROWS_INLINE void weigh(constant AttentionParams& params, device const bool* mask,
                         device const T* bias, device const int* seed, AttentionPlace at,
                         thread float (&values)[kLaneRows][kOfRow]) thread {
    // Where nothing comes between, products are scaled in the exponential.
    const bool folds = attention_plain && params.scale > 0;
    const bool capped = !attention_plain && params.soft_cap > 0;
    const float scale = capped ? params.scale : params.scale * kLog2E;
    const float factor = folds ? scale : 1.0f;
    if (!folds) {
      ROWS_UNROLL
      for (int i = 0; i < kLaneRows * kOfRow; ++i) values[i / kOfRow][i % kOfRow] *= scale;
    }
    if (capped) {
      ROWS_UNROLL
      for (int i = 0; i < kLaneRows * kOfRow; ++i) {
        thread float& score = values[i / kOfRow][i % kOfRow];
        score = attention_capped(params.soft_cap, score) * kLog2E;
      }
    }
    if (!attention_sees_all(params, at, kRows, kKeys)) {
      ROWS_UNROLL
      for (int r = 0; r < kLaneRows; ++r) hide(params, mask, bias, at, row(r), values[r]);
    }
    float shrink[kLaneRows];
    bool shrinks = false;
    ROWS_UNROLL
    for (int r = 0; r < kLaneRows; ++r) {
      float now = values[r][0];
      ROWS_UNROLL
      for (int j = 1; j < kOfRow; ++j) now = max(now, values[r][j]);
      now = max(most[r], Ops::row_max(now) * factor);
      // For a query that has seen no key yet, all weights are 0.
      const float base = now == -INFINITY ? 0.0f : now;
      float sum = 0.0f;
      ROWS_UNROLL
      for (int j = 0; j < kOfRow; ++j) {
        values[r][j] = attention_exp2(fma(values[r][j], factor, -base));
        sum += values[r][j];
      }
      shrink[r] = attention_exp2(most[r] - base);
      shrinks = shrinks || shrink[r] != 1.0f;
      weight[r] = fma(weight[r], shrink[r], sum);
      most[r] = now;
    }
    if (!attention_plain && params.dropout != 0) {
      ROWS_UNROLL
      for (int i = 0; i < kLaneRows * kOfRow; ++i) {
        const int r = i / kOfRow, j = i % kOfRow;
        values[r][j] = attention_dropped(params, seed, at, row(r), column(j), values[r][j]);
      }
    }
    if (simd_any(shrinks)) Ops::scale(sums, shrink, space, lane);
  }

  // Writes the rows' results, or those of a part of the keys.
  ROWS_INLINE void finish(constant AttentionParams& params, constant AttentionSplits& splits,
                          AttentionPlace at, uint split, device T* outputs,
                          device float* log_sum_exp, device float* part_outputs,
                          device float* part_log_sum_exp) thread {
    const bool whole = splits.parts == 1;
    const long query_row = attention_query_row(params, at);
    const long part_row = long(split) * attention_rows(params) + query_row;
    float factor[kLaneRows];
    ROWS_UNROLL
    for (int r = 0; r < kLaneRows; ++r) {
      const float sum = Ops::row_sum(weight[r]);
      const bool none = sum == 0.0f;
      factor[r] = none ? 0.0f : 1.0f / sum;
      if (row(r) >= at.queries || column(0) != 0) continue;
      const float total = none ? -INFINITY : fma(most[r], kLn2, precise_log(sum));
      if (whole) {
        log_sum_exp[query_row + row(r)] = total;
      } else {
        part_log_sum_exp[part_row + row(r)] = total;
      }
    }
    Ops::scale(sums, factor, space, lane);
    ROWS_UNROLL
    for (int i = 0; i < kSums; ++i) {
      if (8 * i >= int(params.value_size)) break;
      const int left = int(params.value_size) - 8 * i;
      if (whole) {
        device T* const to = outputs + query_row * params.value_size + 8 * i;
        Ops::store(sums[i], Piece<T>{to, long(params.value_size), at.queries, left}, space, lane);
      } else {
        device float* const to = part_outputs + part_row * params.value_size + 8 * i;
        Ops::add(sums[i], Piece<float>{to, long(params.value_size), at.queries, left}, false, space,
                 lane);
      }
    }
  }
};

// kTogether: threadgroups that the registers are shared out to.
template <typename T, int kSize, int kWarpgroups, int kKeys, int kStages, int kTogether>
[[kernel, max_total_threads_per_threadgroup(128 * kWarpgroups * kTogether)]] void
attention_warpgroups(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device T* outputs [[buffer(7)]],
    device float* log_sum_exp [[buffer(8)]], device float* part_outputs [[buffer(9)]],
    device float* part_log_sum_exp [[buffer(10)]], constant AttentionParams& params [[buffer(11)]],
    constant AttentionSplits& splits [[buffer(12)]], device atomic_uint* counters [[buffer(13)]],
    threadgroup T* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Part = AttentionWarpgroup<T, kSize, kWarpgroups, kKeys, kStages>;
  using Ops = typename Part::Ops;
  threadgroup T* const k_tiles = memory + Part::kTileQ;
  threadgroup T* const v_tiles = k_tiles + kStages * Part::kTileK;
  Part own;
#if defined(__HAVE_WARPGROUP_MATRIX__)
  own.space = nullptr;  // a lane's scores are in its registers
#else
  threadgroup float scores_of[4 * kWarpgroups * kRows * kKeys];
  own.space = scores_of + simdgroup * kRows * kKeys;
#endif
  own.lane = lane;
  AttentionPlace whole;
  const uint split = group.z % splits.parts;
  whole.batch = group.z / splits.parts;
  whole.head = group.y;
  whole.length = attention_length_of(params, lengths, whole.batch);
  // The last queries first: they may see more keys.
  whole.query = long(groups.x - 1 - group.x) * Part::kQueries;
  whole.queries = int(min(long(Part::kQueries), long(params.queries) - whole.query));
  whole.key = 0;
  // The simdgroup's rows, and those of the four together.
  const int part = int(simdgroup) % 4, first = int(simdgroup) / 4 * 64;
  AttentionPlace at = whole, four = whole;
  four.query += first;
  four.queries = min(whole.queries - first, 64);
  at.query += first + kRows * part;
  at.queries = min(whole.queries - first - kRows * part, kRows);

  AttentionKeys seen = attention_keys_of(params, whole.length, whole.query, whole.queries);
  const long blocks = (seen.last - seen.first + kKeys - 1) / kKeys;
  const long share = (blocks + splits.parts - 1) / splits.parts * kKeys;
  seen.first += long(split) * share;
  seen.last = min(seen.last, seen.first + share);
  const long n_keys = max(seen.last - seen.first, 0l);
  const long key_row = attention_key_row(params, whole) + seen.first;
  typename Part::template Copy<Part::kQueries, typename Part::Scores::A> of_q(
      Part::lines(q + attention_query_row(params, whole) * params.size, whole.queries, params.size),
      0, 0, thread_);
  typename Part::template Copy<kKeys, typename Part::Scores::B> of_k(
      Part::lines(k + key_row * params.size, n_keys, params.size), 0, 0, thread_);
  typename Part::template Copy<kKeys, typename Part::Scores::B> of_v(
      Part::lines(v + key_row * params.value_size, n_keys, params.value_size), 0, 0, thread_);
  of_q.next(memory);
  ROWS_UNROLL
  for (int i = 0; i < Part::kSums; ++i) Ops::clear(own.sums[i]);
  ROWS_UNROLL
  for (int r = 0; r < Part::kLaneRows; ++r) {
    own.most[r] = -INFINITY;
    own.weight[r] = 0.0f;
  }
  const int steps = int((n_keys + kKeys - 1) / kKeys);
  ROWS_UNROLL
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) {
      of_k.next(k_tiles + s * Part::kTileK);
      of_v.next(v_tiles + s * Part::kTileK);
    }
    gemm_end_copies();
  }
  int stage = 0, next = kStages - 1;
#pragma clang loop unroll(disable)
  for (int step = 0; step < steps; ++step) {
    gemm_wait_for_copies<kStages - 2>();
    show_to_products();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (step + kStages - 1 < steps) {
      of_k.next(k_tiles + next * Part::kTileK);
      of_v.next(v_tiles + next * Part::kTileK);
    }
    gemm_end_copies();
    four.key = at.key = seen.first + long(step) * kKeys;
    four.keys = at.keys = int(min(long(kKeys), seen.last - at.key));
    if (four.queries > 0 && attention_sees(params, four)) {
      typename Ops::Sums16 scores[kKeys / 8];
      begin_products();
      Part::Scores::run(memory, first, k_tiles + stage * Part::kTileK, part, scores, false, lane);
      end_products();
      wait_for_products<0>();
      float values[Part::kLaneRows][Part::kOfRow];
      Ops::read(scores, values, own.space, lane);
      if (at.queries > 0) own.weigh(params, mask, bias, seed, at, values);
      typename Ops::Rows16 weights[kKeys / 16];
      Ops::write(values, weights, own.space, lane);
      begin_products();
      Part::Values::run(weights, v_tiles + stage * Part::kTileK, own.sums, true, lane);
      end_products();
      wait_for_products<0>();
    }
    if (++stage == kStages) stage = 0;
    if (++next == kStages) next = 0;
  }

  if (at.queries > 0) {
    own.finish(params, splits, at, split, outputs, log_sum_exp, part_outputs, part_log_sum_exp);
  }
  if (splits.begin == 0) return;
  // Tiles are read no more: the first thread's result is told there.
  threadgroup uint* const last = reinterpret_cast<threadgroup uint*>(memory);
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  if (thread_ == 0) {
    const uint number = (whole.batch * groups.y + group.y) * groups.x + group.x;
    *last = attention_is_last(counters + number, splits) ? 1 : 0;
  }
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  if (*last == 0) return;
  const AttentionParts<T> parts = {part_outputs, part_log_sum_exp,       outputs,
                                   log_sum_exp,  attention_rows(params), params.value_size,
                                   splits.parts};
  const long row = attention_query_row(params, whole);
  for (int r = int(simdgroup); r < whole.queries; r += 4 * kWarpgroups) {
    parts.template join<kSize>(row + r, lane);
  }
}

#define INSTANTIATE(T)                                                                \
  INSTANTIATE_KERNEL("attention_warpgroups_" #T "_64", attention_warpgroups, T, 64,   \
                     ATTENTION_WARPGROUPS_64)                                         \
  INSTANTIATE_KERNEL("attention_warpgroups_" #T "_128", attention_warpgroups, T, 128, \
                     ATTENTION_WARPGROUPS_128)                                        \
  INSTANTIATE_KERNEL("attention_warpgroups_" #T "_0", attention_warpgroups, T, 64,    \
                     ATTENTION_WARPGROUPS_SMALL)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
