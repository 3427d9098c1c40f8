// The shaders of attention's gradients where four simdgroups multiply together: who owns queries sums over the keys,
// and who owns keys over the queries, whose tiles come into threadgroup memory while those before are multiplied.

#include "kernels/attention/attention_warpgroups_gradient.metal.h"

// For each query the numbers that the others begin with, as a pair: the logarithm of its sum, of 2, and the product of its output
// and that one's gradient. kSize / 8 lanes have a query. Turns begin with none taken.
template <typename T, int kSize>
[[kernel]] void attention_warpgroups_means(
    device const T* outputs [[buffer(0)]], device const T* d_outputs [[buffer(1)]],
    device const float* log_sum_exp [[buffer(2)]], device float2* pairs [[buffer(3)]],
    device uint* turns [[buffer(4)]], constant uint& n_turns [[buffer(5)]],
    constant AttentionParams& params [[buffer(6)]], uint3 position [[thread_position_in_grid]],
    uint3 all [[threads_per_grid]]) {
  constexpr uint kLanes = kSize / 8;
  const uint number = (position.z * all.y + position.y) * all.x + position.x;
  if (number < n_turns) turns[number] = 0;
  AttentionPlace at;
  at.batch = position.z;
  at.head = position.y;
  at.query = position.x / kLanes;
  const bool there = at.query < long(params.queries);
  const long row = attention_query_row(params, at) - (there ? 0 : at.query);
  const int first = int(position.x % kLanes * 8);
  const int n = there ? min(int(params.value_size) - first, 8) : 0;
  device const T* const a = outputs + row * params.value_size + first;
  device const T* const b = d_outputs + row * params.value_size + first;
  float sum = 0.0f;
  if (n == 8 && ((reinterpret_cast<ulong>(a) | reinterpret_cast<ulong>(b)) & 15) == 0) {
    for (int i = 0; i < 2; ++i) {
      const vec<T, 4> x = ((device const vec<T, 4>*)a)[i], y = ((device const vec<T, 4>*)b)[i];
      for (int j = 0; j < 4; ++j) sum = fma(float(x[j]), float(y[j]), sum);
    }
  } else {
    for (int i = 0; i < n; ++i) sum = fma(float(a[i]), float(b[i]), sum);
  }
  for (uint apart = kLanes / 2; apart > 0; apart /= 2) sum += simd_shuffle_xor(sum, apart);
  if (first != 0) return;
  const float total = there ? log_sum_exp[row] : -INFINITY;
  const bool none = total == -INFINITY;
  pairs[attention_padded_row(params, at)] =
      float2(none ? INFINITY : total * kLog2E, none ? 0.0f : sum);
}

// kTogether: threadgroups that the registers are shared out to.
template <typename T, int kSize, int kQueries, int kStages, int kTogether>
[[kernel, max_total_threads_per_threadgroup(128 * kTogether)]] void attention_warpgroups_d_kv(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float2* pairs [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device T* d_k [[buffer(9)]],
    device T* d_v [[buffer(10)]], constant AttentionParams& params [[buffer(11)]],
    threadgroup T* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint thread_ [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  using Ops = Rows<T>;
  using Queries = AttentionQueries<T, kSize, kQueries, kStages, 128, false>;
  using Scores = WarpgroupProduct<T, 64, kQueries, kSize, true, true, true>;
  using Product = WarpgroupProduct<T, 64, kSize, kQueries, true, false, true>;
  constexpr int kSums = kSize / 8;
  threadgroup T* const k_tile = memory;
  threadgroup T* const v_tile = k_tile + Scores::A::kElements;
  threadgroup T* const tiles = v_tile + Scores::A::kElements;
  threadgroup float4* const pairs_of =
      reinterpret_cast<threadgroup float4*>(tiles + 2 * kStages * Queries::kTile);
#if defined(__HAVE_WARPGROUP_MATRIX__)
  threadgroup float* const space = nullptr;  // a lane's scores are in its registers
#else
  threadgroup float scores_of[4 * kRows * kQueries];
  threadgroup float* const space = scores_of + simdgroup * kRows * kQueries;
#endif

  const uint sharing = params.heads / params.kv_heads;
  AttentionAgain<T> own;
  own.mask = mask;
  own.bias = bias;
  own.seed = seed;
  own.at.batch = group.z;
  own.at.head = group.y * sharing;
  own.at.length = attention_length_of(params, lengths, own.at.batch);
  own.at.key = long(group.x) * 64;
  own.at.keys = int(max(min(64l, own.at.length - own.at.key), 0l));
  const long key_row = attention_key_row(params, own.at);
  Queries next;
  next.q = q;
  next.d_outputs = d_outputs;
  next.pairs = pairs;
  next.place(params, own.at);
  own.at.query = next.begin();

  typename Ops::Sums16 k_sums[kSums], v_sums[kSums];
  ROWS_UNROLL
  for (int i = 0; i < kSums; ++i) {
    Ops::clear(k_sums[i]);
    Ops::clear(v_sums[i]);
  }
  using Copy = GemmTileCopy<64, kSize, 128, true, T, typename Scores::A>;
  Copy of_k(attention_lines(k + key_row * params.size, long(own.at.keys), params.size), 0, 0,
            thread_);
  Copy of_v(attention_lines(v + key_row * params.value_size, long(own.at.keys), params.value_size),
            0, 0, thread_);
  of_k.next(k_tile);
  of_v.next(v_tile);
  if (next.steps > 0) next.next(params, tiles, pairs_of, 0, thread_);
  gemm_end_copies();
  const int part = int(simdgroup);
  int stage = 0;
#pragma clang loop unroll(disable)
  for (int step = 0; step < next.steps; ++step) {
    gemm_wait_for_copies<0>();
    show_to_products();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup T* const q_tile = tiles + 2 * stage * Queries::kTile;
    threadgroup T* const d_tile = q_tile + Queries::kTile;
    threadgroup float4* const of = pairs_of + stage * kQueries / 2;
    if (++stage == kStages) stage = 0;
    if (step + 1 < next.steps) next.next(params, tiles, pairs_of, stage, thread_);
    gemm_end_copies();
    typename Ops::Sums16 scores[kQueries / 8], d_scores[kQueries / 8];
    begin_products();
    Scores::run(k_tile, 0, q_tile, part, scores, false, lane);
    end_products();
    Scores::run(v_tile, 0, d_tile, part, d_scores, false, lane);
    end_products();
    wait_for_products<1>();
    read_products(scores);

    own.at.queries = int(min(long(kQueries), long(params.queries) - own.at.query));
    own.place(params, kQueries, 64);
    const uint its = each_turn(lane);
    AttentionOfKeys<T, kQueries> of_keys;
    Ops::read(scores, of_keys.values, space, lane);
    if (own.all) {
      of_keys.template weigh<true>(params, own, of, kRows * part, its);
    } else {
      of_keys.template weigh<false>(params, own, of, kRows * part, its);
    }
    wait_for_products<0>();
    read_products(d_scores);
    Ops::read(d_scores, of_keys.d, space, lane);
    if (own.all) {
      of_keys.template slope<true>(params, own, of, kRows * part, its);
    } else {
      of_keys.template slope<false>(params, own, of, kRows * part, its);
    }
    // Operands in registers are made while no product is under way.
    typename Ops::Rows16 weights[kQueries / 16], d_weights[kQueries / 16];
    Ops::write(of_keys.values, weights, space, lane);
    Ops::write(of_keys.d, d_weights, space, lane);
    begin_products();
    Product::run(weights, d_tile, v_sums, true, lane);
    Product::run(d_weights, q_tile, k_sums, true, lane);
    end_products();
    // Before the sums of the next step: else the assembler lets no products run together.
    wait_for_products<0>();

    next.advance(own.at);
  }
  read_products(k_sums);
  read_products(v_sums);
  gemm_wait_for_copies<0>();
  const int rows = int(min(64l, long(params.keys) - own.at.key)) - kRows * part;
  const long row = key_row + kRows * part;
  attention_store(k_sums, params.scale, d_k + row * params.size, params.size, 0, rows, space, lane);
  attention_store(v_sums, 1.0f, d_v + row * params.value_size, params.value_size, 0, rows, space,
                  lane);
}

template <typename T, int kSize, int kKeys, int kStages, int kTogether>
[[kernel, max_total_threads_per_threadgroup(128 * kTogether)]] void attention_warpgroups_d_q(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float2* pairs [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device T* d_q [[buffer(9)]],
    constant AttentionParams& params [[buffer(10)]], threadgroup T* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint thread_ [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  using Ops = Rows<T>;
  using Scores = WarpgroupProduct<T, 64, kKeys, kSize, true, true, true>;
  using Product = WarpgroupProduct<T, 64, kSize, kKeys, true, false, true>;
  constexpr int kTile = Scores::B::kElements;
  constexpr int kSums = kSize / 8, kLaneRows = Ops::kLaneRows;
#if defined(__HAVE_WARPGROUP_MATRIX__)
  threadgroup float* const space = nullptr;  // a lane's scores are in its registers
#else
  threadgroup float scores_of[4 * kRows * (kKeys < 16 ? 16 : kKeys)];
  threadgroup float* const space = scores_of + simdgroup * kRows * (kKeys < 16 ? 16 : kKeys);
#endif

  AttentionAgain<T> own;
  own.mask = mask;
  own.bias = bias;
  own.seed = seed;
  own.at.batch = group.z;
  own.at.head = group.y;
  own.at.length = attention_length_of(params, lengths, own.at.batch);
  // The last queries first: they may see more keys.
  own.at.query = long(groups.x - 1 - group.x) * 64;
  own.at.queries = int(min(64l, long(params.queries) - own.at.query));
  own.at.key = 0;
  const AttentionKeys seen = attention_keys_of(params, own.at.length, own.at.query, own.at.queries);
  const long n_keys = max(seen.last - seen.first, 0l);
  const int steps = int((n_keys + kKeys - 1) / kKeys);
  const long key_row = attention_key_row(params, own.at) + seen.first;
  using Copy = GemmTileCopy<kKeys, kSize, 128, true, T, typename Scores::B>;
  Copy of_k(attention_lines(k + key_row * params.size, n_keys, params.size), 0, 0, thread_);
  Copy of_v(attention_lines(v + key_row * params.value_size, n_keys, params.value_size), 0, 0,
            thread_);
  if (steps > 0) {
    of_k.next(memory);
    of_v.next(memory + kTile);
  }
  gemm_end_copies();
  // The simdgroup's own rows.
  const int part = int(simdgroup), n = own.at.queries - kRows * part;
  const long row = attention_query_row(params, own.at) + (n > 0 ? kRows * part : 0);
  typename Ops::Rows16 queries[kSize / 16], d_rows[kSize / 16];
  ROWS_UNROLL
  for (int i = 0; i < kSize / 16; ++i) {
    const int left = int(params.size) - 16 * i;
    Ops::load(
        queries[i],
        Piece<const T>{q + row * params.size + (left > 0 ? 16 * i : 0), long(params.size), n, left},
        space, lane);
  }
  ROWS_UNROLL
  for (int i = 0; i < kSize / 16; ++i) {
    const int left = int(params.value_size) - 16 * i;
    Ops::load(d_rows[i],
              Piece<const T>{d_outputs + row * params.value_size + (left > 0 ? 16 * i : 0),
                             long(params.value_size), n, left},
              space, lane);
  }
  float base[kLaneRows], mean[kLaneRows];
  ROWS_UNROLL
  for (int r = 0; r < kLaneRows; ++r) {
    const float2 pair =
        pairs[attention_padded_row(params, own.at) + kRows * part + Ops::row(r, lane)];
    base[r] = pair.x;
    mean[r] = pair.y;
  }
  typename Ops::Sums16 sums[kSums];
  ROWS_UNROLL
  for (int i = 0; i < kSums; ++i) Ops::clear(sums[i]);
  int stage = 0;
#pragma clang loop unroll(disable)
  for (int step = 0; step < steps; ++step) {
    gemm_wait_for_copies<0>();
    show_to_products();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup T* const k_tile = memory + 2 * stage * kTile;
    threadgroup T* const v_tile = k_tile + kTile;
    typename Ops::Sums16 scores[kKeys / 8], d_scores[kKeys / 8];
    begin_products();
    Scores::run(queries, k_tile, scores, false, lane);
    end_products();
    Scores::run(d_rows, v_tile, d_scores, false, lane);
    end_products();
    wait_for_products<1>();
    read_products(scores);
    // No thread reads the tiles before these any more.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (++stage == kStages) stage = 0;
    if (step + 1 < steps) {
      of_k.next(memory + 2 * stage * kTile);
      of_v.next(memory + (2 * stage + 1) * kTile);
    }
    gemm_end_copies();

    own.at.key = seen.first + long(step) * kKeys;
    own.at.keys = int(min(long(kKeys), seen.last - own.at.key));
    own.place(params, 64, kKeys);
    const uint its = each_turn(lane);
    AttentionOfQueries<T, kKeys> of_queries;
    Ops::read(scores, of_queries.values, space, lane);
    if (own.all) {
      of_queries.template weigh<true>(params, own, base, kRows * part, its);
    } else {
      of_queries.template weigh<false>(params, own, base, kRows * part, its);
    }
    wait_for_products<0>();
    read_products(d_scores);
    Ops::read(d_scores, of_queries.d, space, lane);
    if (own.all) {
      of_queries.template slope<true>(params, own, mean, kRows * part, its);
    } else {
      of_queries.template slope<false>(params, own, mean, kRows * part, its);
    }
    typename Ops::Rows16 d_weights[kKeys / 16];
    Ops::write(of_queries.d, d_weights, space, lane);
    begin_products();
    Product::run(d_weights, k_tile, sums, true, lane);
    end_products();
  }
  wait_for_products<0>();
  read_products(sums);
  gemm_wait_for_copies<0>();
  attention_store(sums, params.scale, d_q + row * params.size, params.size, 0, n, space, lane);
}

#define INSTANTIATE_SIZE(T, name, size, of_keys, of_queries)                                      \
  INSTANTIATE_KERNEL("attention_warpgroups_d_kv_" #T "_" #name, attention_warpgroups_d_kv, T,     \
                     size, of_keys)                                                               \
  INSTANTIATE_KERNEL("attention_warpgroups_d_q_" #T "_" #name, attention_warpgroups_d_q, T, size, \
                     of_queries)
#define INSTANTIATE(T)                                                                            \
  INSTANTIATE_KERNEL("attention_warpgroups_means_" #T "_64", attention_warpgroups_means, T, 64)   \
  INSTANTIATE_KERNEL("attention_warpgroups_means_" #T "_128", attention_warpgroups_means, T, 128) \
  INSTANTIATE_SIZE(T, 64, 64, ATTENTION_GRADIENT_KV_64, ATTENTION_GRADIENT_Q_64)                  \
  INSTANTIATE_SIZE(T, 128, 128, ATTENTION_GRADIENT_KV_128, ATTENTION_GRADIENT_Q_128)              \
  INSTANTIATE_SIZE(T, 0, 64, ATTENTION_GRADIENT_KV_SMALL, ATTENTION_GRADIENT_Q_SMALL)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
