// The shaders of attention's gradients where twice four simdgroups have 128 keys and go over the queries once: they sum
// up the gradients of their keys, and add to those of the queries, each in the order of the keys, so that all sums are
// the same from run to run.

#include "kernels/attention/attention_warpgroups_gradient.metal.h"
#include "kernels/msl/fence.h"

// Simdgroups that multiply, and their barriers: others bring tiles and take turns meanwhile where the compiler says
// that the matrix unit multiplies while simdgroups go on.
constexpr constant int kTurnThreads = 256, kTurnKeys = 128;
#if defined(__HAVE_WARPGROUP_MATRIX__)
// Two simdgroups bring tiles, and each of two takes every other turn.
constexpr constant int kBringers = 64, kTakers = 32;
// Where they meet: tiles are there, of each stage; are free again; the gradients of scores are
// there; the sums of a turn's queries are; may be written again.
constexpr constant uint kFilled = 1, kEmpty = 3, kScores = 5, kSums = 6, kTaken = 8;
#else
constexpr constant int kBringers = kTurnThreads;
#endif

// Where the sums of a step's queries lie, as float32: of all threads the first four, then the next.
template <int kSize, int kQueries>
struct AttentionTurnSums {
  static constexpr constant int kElements = kSize * kQueries;
  // A thread's pieces of 8 columns; its simdgroups' 64 rows and columns of them begin here.
  static constexpr constant int kPieces = kElements / kTurnThreads / 4;
  ROWS_INLINE static int place(int piece, uint thread_) {
    return int(thread_ / 128) * (kElements / 2) + (piece * 128 + int(thread_ % 128)) * 4;
  }
  ROWS_INLINE static int row(int four) { return kQueries == 128 ? 64 * four : 0; }
  ROWS_INLINE static int column(int four) { return kQueries == 128 ? 0 : 64 * four; }
  static_assert(kElements == 128 * 64, "eight simdgroups have 16 rows and 64 columns each");
};

inline long attention_turn(constant AttentionParams& params, AttentionPlace at, int queries) {
  return attention_padded_row(params, at) / queries;
}

template <typename T, int kSize, int kQueries, int kStages>
struct AttentionTurns {
  using Ops = Rows<T>;
  using Queries = AttentionQueries<T, kSize, kQueries, kStages, kBringers, true>;
  using Scores = WarpgroupProduct<T, kTurnKeys, kQueries, kSize, true, true, true>;
  using Product = WarpgroupProduct<T, 64, kSize, kQueries, true, false, true>;
  using Turned = WarpgroupProduct<T, kQueries, 64, kTurnKeys, false, false, true>;
  using QuerySums = AttentionTurnSums<kSize, kQueries>;
  using Keys = PanelsCopy<T, kTurnKeys, kSize, kBringers>;

  threadgroup T* k_tile;
  threadgroup T* v_tile;
  threadgroup T* tiles;
  threadgroup T* d_scores_tile;
  threadgroup float* sums;
  threadgroup float4* pairs;

  ROWS_INLINE void place(threadgroup T* memory) thread {
    k_tile = memory;
    v_tile = k_tile + Scores::A::kElements;
    tiles = v_tile + Scores::A::kElements;
    d_scores_tile = tiles + 2 * kStages * Queries::kTile;
    sums = reinterpret_cast<threadgroup float*>(d_scores_tile + Turned::A::kElements);
    pairs = reinterpret_cast<threadgroup float4*>(sums + 2 * QuerySums::kElements);
  }
  ROWS_INLINE void bring_keys(constant AttentionParams& params, AttentionPlace at,
                              device const T* k, device const T* v, uint thread_) thread {
    const long row = attention_key_row(params, at);
    Keys::bring(attention_lines(k + row * params.size, long(at.keys), params.size), 0, k_tile,
                thread_);
    Keys::bring(attention_lines(v + row * params.value_size, long(at.keys), params.value_size), 0,
                v_tile, thread_);
  }
};

// Which of those who add to a step's queries these keys are. Keys before those that the first of the queries sees have
// no turn.
inline uint attention_turn_of(constant AttentionParams& params, AttentionPlace at) {
  const long earliest = at.query + at.length - long(params.queries) - params.left;
  return uint(at.key / kTurnKeys - (params.left < 0 ? 0l : max(earliest, 0l) / kTurnKeys));
}

template <typename T, int kSize, int kQueries, int kStages>
[[kernel, max_total_threads_per_threadgroup(ATTENTION_GRADIENT_TURNS_THREADS)]] void
attention_turns_d_all(
    device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const bool* mask [[buffer(3)]],
    device const T* bias [[buffer(4)]], device const int* lengths [[buffer(5)]],
    device const int* seed [[buffer(6)]], device const float2* pairs [[buffer(7)]],
    device const T* d_outputs [[buffer(8)]], device T* d_k [[buffer(9)]],
    device T* d_v [[buffer(10)]], device float* q_sums [[buffer(11)]],
    device atomic_uint* turns [[buffer(12)]], constant AttentionParams& params [[buffer(13)]],
    threadgroup T* memory [[threadgroup(0)]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Part = AttentionTurns<T, kSize, kQueries, kStages>;
  using Ops = Rows<T>;
  using QuerySums = typename Part::QuerySums;
#if !defined(__HAVE_WARPGROUP_MATRIX__)
  if (thread_ >= kTurnThreads) return;
#endif
  Part own;
  own.place(memory);
  // Threadgroups take keys in the order in which they begin: one only waits for those that have begun.
  AttentionPlace none = {};
  none.batch = params.batch;
  device atomic_uint* const tickets = turns + attention_turn(params, none, kQueries);
  threadgroup uint* const ticket_of = reinterpret_cast<threadgroup uint*>(memory);
  if (thread_ == 0) *ticket_of = atomic_fetch_add_explicit(tickets, 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint ticket = *ticket_of;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint of = ticket % (params.kv_heads * params.batch);

  AttentionAgain<T> again;
  again.mask = mask;
  again.bias = bias;
  again.seed = seed;
  again.at.batch = of / params.kv_heads;
  again.at.head = of % params.kv_heads * (params.heads / params.kv_heads);
  again.at.length = attention_length_of(params, lengths, again.at.batch);
  again.at.key = long(ticket / (params.kv_heads * params.batch)) * kTurnKeys;
  again.at.keys = int(max(min(long(kTurnKeys), again.at.length - again.at.key), 0l));
  typename Part::Queries next;
  next.q = q;
  next.d_outputs = d_outputs;
  next.pairs = pairs;
  next.place(params, again.at);
  again.at.query = next.begin();

#if defined(__HAVE_WARPGROUP_MATRIX__)
  if (simdgroup >= 8) {
    _msl::give_registers<40>();
    const uint other = simdgroup - 8;
    if (other < kBringers / 32) {
      const uint its = thread_ - kTurnThreads;
      own.bring_keys(params, again.at, k, v, its);
#pragma clang loop unroll(disable)
      for (int step = 0; step < next.steps; ++step) {
        const int stage = step % kStages;
        if (step >= kStages) _msl::meet_at(kEmpty + stage, kBringers + kTurnThreads);
        next.next(params, own.tiles, own.pairs, stage, its);
        gemm_end_copies();
        gemm_wait_for_copies<0>();
        show_to_products();
        _msl::come_to(kFilled + stage, kBringers + kTurnThreads);
      }
    } else {
      const uint turn = other - kBringers / 32;
      threadgroup float* const from = own.sums + turn * QuerySums::kElements;
      if (turn == 1) next.advance(again.at);
#pragma clang loop unroll(disable)
      for (int step = int(turn); step < next.steps; step += 2) {
        _msl::meet_at(kSums + turn, kTakers + kTurnThreads);
        const long number = attention_turn(params, again.at, kQueries);
        const uint mine = attention_turn_of(params, again.at);
        if (lane == 0) {
          _msl::wait_for_number(turns + number, mine);
          _msl::begin_stores();
          device float* const to = q_sums + number * QuerySums::kElements;
          if (mine == 0) {
            _msl::store_bytes(to, from, QuerySums::kElements * 4);
          } else {
            _msl::add_floats(to, from, QuerySums::kElements * 4);
          }
          _msl::end_stores();
          _msl::wait_for_reads();
        }
        _msl::all_lanes();
        if (step + 2 < next.steps) _msl::come_to(kTaken + turn, kTakers + kTurnThreads);
        if (lane == 0) {
          _msl::wait_for_stores();
          _msl::tell_number(turns + number, mine + 1);
        }
        _msl::all_lanes();
        next.advance(again.at);
        next.advance(again.at);
      }
    }
    return;
  }
  _msl::take_registers<232>();
  threadgroup float* const space = nullptr;  // a lane's scores are in its registers
#else
  // No thread has sums of queries yet, or any more, where scores go from lane to lane.
  threadgroup float* const space = own.sums + simdgroup * kRows * kQueries;
  own.bring_keys(params, again.at, k, v, thread_);
#endif
  const int four = int(simdgroup) / 4, part = int(simdgroup) % 4;
  const int first = 64 * four + kRows * part;  // of the simdgroup's keys
  typename Ops::Sums16 k_sums[kSize / 8], v_sums[kSize / 8];
  ROWS_UNROLL
  for (int i = 0; i < kSize / 8; ++i) {
    Ops::clear(k_sums[i]);
    Ops::clear(v_sums[i]);
  }
  int stage = 0;
#pragma clang loop unroll(disable)
  for (int step = 0; step < next.steps; ++step) {
#if defined(__HAVE_WARPGROUP_MATRIX__)
    _msl::meet_at(kFilled + stage, kBringers + kTurnThreads);
#else
    next.next(params, own.tiles, own.pairs, stage, thread_);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    threadgroup T* const q_tile = own.tiles + 2 * stage * Part::Queries::kTile;
    threadgroup T* const d_tile = q_tile + Part::Queries::kTile;
    threadgroup float4* const pairs_here = own.pairs + stage * kQueries / 2;
    typename Ops::Sums16 scores[kQueries / 8], d_scores[kQueries / 8];
    begin_products();
    Part::Scores::run(own.k_tile, 64 * four, q_tile, part, scores, false, lane);
    end_products();
    Part::Scores::run(own.v_tile, 64 * four, d_tile, part, d_scores, false, lane);
    end_products();
    again.at.queries = int(min(long(kQueries), long(params.queries) - again.at.query));
    again.place(params, kQueries, kTurnKeys);
    wait_for_products<1>();
    read_products(scores);

    const uint its = each_turn(lane);
    AttentionOfKeys<T, kQueries> of_keys;
    Ops::read(scores, of_keys.values, space, lane);
    if (again.all) {
      of_keys.template weigh<true>(params, again, pairs_here, first, its);
    } else {
      of_keys.template weigh<false>(params, again, pairs_here, first, its);
    }
    wait_for_products<0>();
    read_products(d_scores);
    Ops::read(d_scores, of_keys.d, space, lane);
    if (again.all) {
      of_keys.template slope<true>(params, again, pairs_here, first, its);
    } else {
      of_keys.template slope<false>(params, again, pairs_here, first, its);
    }
    // Operands in registers are made while no product is under way.
    typename Ops::Rows16 weights[kQueries / 16], d_weights[kQueries / 16];
    Ops::write(of_keys.values, weights, space, lane);
    Ops::write(of_keys.d, d_weights, space, lane);
    ROWS_UNROLL
    for (int c = 0; c < of_keys.kOfRow; c += 2) {
      ROWS_UNROLL
      for (int r = 0; r < of_keys.kLaneRows; ++r) {
        const int at = Part::Turned::A::place(Ops::row(r, its) + first,
                                              Ops::template column<kQueries / 8>(c, its));
#if defined(__HAVE_WARPGROUP_MATRIX__)
        *reinterpret_cast<threadgroup uint*>(own.d_scores_tile + at) =
            d_weights[c / 4].part[c % 4 / 2 * 2 + r];
#else
        *reinterpret_cast<threadgroup vec<T, 2>*>(own.d_scores_tile + at) =
            vec<T, 2>(T(of_keys.d[r][c]), T(of_keys.d[r][c + 1]));
#endif
      }
    }
    show_to_products();
#if defined(__HAVE_WARPGROUP_MATRIX__)
    _msl::meet_at(kScores, kTurnThreads);
#else
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    typename Ops::Sums16 its_sums[8];
    begin_products();
    Part::Turned::run(own.d_scores_tile, QuerySums::row(four),
                      own.k_tile + QuerySums::column(four) / 64 * Part::Scores::A::kPanel, part,
                      its_sums, false, lane);
    end_products();
    Part::Product::run(weights, d_tile, v_sums, true, lane);
    Part::Product::run(d_weights, q_tile, k_sums, true, lane);
    end_products();
    wait_for_products<1>();
    read_products(its_sums);
#if defined(__HAVE_WARPGROUP_MATRIX__)
    if (step > 1) _msl::meet_at(kTaken + step % 2, kTakers + kTurnThreads);
#endif
    threadgroup float* const sums = own.sums + step % 2 * QuerySums::kElements;
    ROWS_UNROLL
    for (int i = 0; i < 8; ++i) {
      *reinterpret_cast<threadgroup float4*>(sums + QuerySums::place(i, thread_)) =
          float4(Ops::element(its_sums[i], 0), Ops::element(its_sums[i], 1),
                 Ops::element(its_sums[i], 2), Ops::element(its_sums[i], 3));
    }
#if defined(__HAVE_WARPGROUP_MATRIX__)
    show_to_products();
    _msl::come_to(kSums + step % 2, kTakers + kTurnThreads);
#else
    const uint mine = attention_turn_of(params, again.at);
    const long number = attention_turn(params, again.at, kQueries);
    if (thread_ == 0) {
      while (atomic_load_explicit(turns + number, memory_order_relaxed) != mine) {
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    fence_device();
    device float* const to = q_sums + number * QuerySums::kElements;
    for (int i = int(thread_); i < QuerySums::kElements; i += kTurnThreads) {
      to[i] = sums[i] + (mine == 0 ? 0.0f : to[i]);
    }
    fence_device();
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    if (thread_ == 0) atomic_store_explicit(turns + number, mine + 1, memory_order_relaxed);
#endif
    // Before the sums of the next step: else the assembler lets no products run together.
    wait_for_products<0>();
#if defined(__HAVE_WARPGROUP_MATRIX__)
    if (step + kStages < next.steps) _msl::come_to(kEmpty + stage, kBringers + kTurnThreads);
#endif
    if (++stage == kStages) stage = 0;
    next.advance(again.at);
  }
  read_products(k_sums);
  read_products(v_sums);
  const int rows = int(min(long(kTurnKeys), long(params.keys) - again.at.key)) - first;
  AttentionPlace keys = again.at;
  keys.head = of % params.kv_heads * (params.heads / params.kv_heads);
  const long row = attention_key_row(params, keys) + first;
  attention_store(k_sums, params.scale, d_k + row * params.size, params.size, 0, rows, space, lane);
  attention_store(v_sums, 1.0f, d_v + row * params.value_size, params.value_size, 0, rows, space,
                  lane);
}

// The queries' sums become their gradients; nothing, where no key had a turn.
template <typename T, int kSize, int kQueries, int kStages>
[[kernel, max_total_threads_per_threadgroup(kTurnThreads)]] void attention_turns_d_q(
    device const float* q_sums [[buffer(0)]], device const uint* turns [[buffer(1)]],
    device T* d_q [[buffer(2)]], constant AttentionParams& params [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Ops = Rows<T>;
  using QuerySums = AttentionTurnSums<kSize, kQueries>;
#if defined(__HAVE_WARPGROUP_MATRIX__)
  threadgroup float* const space = nullptr;
#else
  threadgroup float space_of[8 * kRows * 16];
  threadgroup float* const space = space_of + simdgroup * kRows * 16;
#endif
  AttentionPlace at;
  at.batch = group.z;
  at.head = group.y;
  at.query = long(group.x) * kQueries;
  const long number = attention_turn(params, at, kQueries);
  const bool any = turns[number] != 0;
  typename Ops::Sums16 sums[8];
  ROWS_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float4 its =
        any ? *reinterpret_cast<device const float4*>(q_sums + number * QuerySums::kElements +
                                                      QuerySums::place(i, thread_))
            : float4(0.0f);
    Ops::set(sums[i], 0, its.x);
    Ops::set(sums[i], 1, its.y);
    Ops::set(sums[i], 2, its.z);
    Ops::set(sums[i], 3, its.w);
  }
  const int four = int(simdgroup) / 4;
  at.query += QuerySums::row(four) + kRows * (int(simdgroup) % 4);
  if (at.query >= long(params.queries)) return;
  const int n = int(min(long(kRows), long(params.queries) - at.query));
  attention_store(sums, params.scale, d_q + attention_query_row(params, at) * params.size,
                  params.size, QuerySums::column(four), n, space, lane);
}

#define INSTANTIATE_SIZE(T, size)                                                           \
  INSTANTIATE_KERNEL("attention_turns_d_all_" #T "_" #size, attention_turns_d_all, T, size, \
                     ATTENTION_GRADIENT_TURNS_##size)                                       \
  INSTANTIATE_KERNEL("attention_turns_d_q_" #T "_" #size, attention_turns_d_q, T, size,     \
                     ATTENTION_GRADIENT_TURNS_##size)
#define INSTANTIATE(T)    \
  INSTANTIATE_SIZE(T, 64) \
  INSTANTIATE_SIZE(T, 128)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
