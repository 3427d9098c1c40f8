// ScaledDotProductAttention and its gradients on the CPU: a block of queries goes over the keys, a
// block of them at a time (Dao 2023, "FlashAttention-2"). The order of sums follows from the sizes
// alone, not from the number of threads.

#include <memory>

#include "kernels/runtime/op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_simd.cc"
#include "kernels/simd/all_targets-inl.h"
// Highway wants this order.
#include "kernels/attention/attention_blocks-inl.h"
#include "kernels/attention/attention_few-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// Threads that `cycles` of work are worth.
inline int64_t Threads(const CpuCall& call, double cycles) {
  return cycles < 1e5 ? 1 : call.n_threads();
}

// Calls work(task, room) for each task, with a room that no two threads have at once.
template <typename Room, typename Make, typename Work>
void RunInRooms(CpuCall& call, int64_t tasks, double cycles, const Make& make, const Work& work) {
  const int64_t threads = Threads(call, cycles);
  std::vector<std::unique_ptr<Room>> rooms(threads);
  call.RunTasks(tasks, threads, [&](int64_t task, int64_t thread) {
    if (rooms[thread] == nullptr) rooms[thread] = make();
    work(task, *rooms[thread]);
  });
}

// ---- forwards
// --------------------------------------------------------------------------------------------

struct ForwardRoom {
  explicit ForwardRoom(const Attention& a) : block(a), sums(block.Room(a.p.value_size)) {}
  AttentionBlock block;
  std::vector<float> sums;  // of weighted values, turned
};

// One block of keys: the weights relative to the largest score so far, and the sums.
HWY_INLINE void AddKeys(const AttentionParams& p, AttentionBlock* block, float* most, float* weight,
                        float* sums) {
  const int64_t lanes = Floats::Lanes(), columns = block->columns, n = block->n_keys;
  block->Score();
  for (int64_t c = 0; c < columns; c += lanes) {
    float* const scores = block->scores.data() + c;
    const Floats before = Floats::Load(most + c);
    Floats now = before;
    for (int64_t j = 0; j < n; ++j) now = max(now, Floats::Load(scores + j * columns));
    // For a query that has seen no key yet, all weights are 0.
    const Floats base = select(now, Floats(0.0f), now == Floats(-kInfinity));
    Floats sum(0.0f);
    for (int64_t j = 0; j < n; ++j) {
      const Floats w = Weight(Floats::Load(scores + j * columns) - base);
      sum = sum + w;
      w.Store(scores + j * columns);
    }
    const Floats shrink = Weight(before - base);
    fma(Floats::Load(weight + c), shrink, sum).Store(weight + c);
    now.Store(most + c);
    if (!any_of(shrink != Floats(1.0f))) continue;
    for (int64_t i = 0; i < p.value_size; ++i) {
      float* const at = sums + i * columns + c;
      (Floats::Load(at) * shrink).Store(at);
    }
  }
  block->Drop(block->scores.data());
  Multiply<true>(p.value_size, columns, block->v, 1, p.value_size, n, block->scores.data(), columns,
                 sums, columns);
}

void Forward(CpuCall& call) {
  const Attention a(call);
  const AttentionParams& p = a.p;
  if (FewQueries::Fits(a)) {
    const auto room = [&] { return std::make_unique<FewQueries>(a); };
    return RunInRooms<FewQueries>(call, int64_t{p.batch} * p.kv_heads, FewQueries::Cycles(a), room,
                                  [&](int64_t group, FewQueries& my) {
                                    my.Run(group / p.kv_heads, group % p.kv_heads,
                                           call.float_out(0), call.out<float>(1));
                                  });
  }
  const int64_t rows = a.sharing * p.queries, most_columns = a.Columns();
  const int64_t blocks = (rows + most_columns - 1) / most_columns;
  const int64_t tasks = int64_t{p.batch} * p.kv_heads * blocks;
  // Lanes without a query take as long.
  const double lanes =
      double(blocks) * double(RoundUp(std::min(rows, most_columns), Floats::Lanes()));
  const double cycles = double(a.Cycles()) * lanes * p.batch * p.kv_heads;
  const auto room = [&] { return std::make_unique<ForwardRoom>(a); };
  RunInRooms<ForwardRoom>(call, tasks, cycles, room, [&](int64_t task, ForwardRoom& my) {
    AttentionBlock& block = my.block;
    const int64_t group = task / blocks, first = task % blocks * most_columns;
    block.Begin(group / p.kv_heads, group % p.kv_heads, first,
                std::min(most_columns, rows - first));
    float most[kMaxColumns], weight[kMaxColumns] = {};
    std::fill_n(most, kMaxColumns, -kInfinity);
    std::fill(my.sums.begin(), my.sums.end(), 0.0f);
    for (int64_t j = block.begin; j < block.end; j += kKeys) {
      block.ReadKeys(j, std::min(kKeys, block.end - j));
      AddKeys(p, &block, most, weight, my.sums.data());
    }
    float factors[kMaxColumns];
    float* const log_sum_exp = call.out<float>(1);
    for (int64_t lane = 0; lane < block.n_queries; ++lane) {
      const bool none = weight[lane] == 0;
      factors[lane] = none ? 0.0f : 1.0f / weight[lane];
      log_sum_exp[block.row(lane)] = none ? -kInfinity : most[lane] + std::log(weight[lane]);
    }
    block.WriteTurned(my.sums.data(), p.value_size, factors, call.float_out(0));
  });
}

// ---- backwards
// --------------------------------------------------------------------------------------------

// Inputs of the gradient ops behind those of the forward one.
constexpr int kOutputs = 7, kLogSumExp = 8, kGradients = 9;

// Shared by both gradients of a block: weights, and the slopes of the scores.
struct BackwardRoom {
  explicit BackwardRoom(const Attention& attention)
      : a(attention),
        block(a),
        d_out(block.Room(a.p.value_size)),
        outputs(block.Room(a.p.value_size)),
        weights(block.Room(kKeys)),
        d_scores(block.Room(kKeys)) {}

  // After the block's Begin.
  void Begin(const CpuCall& call) {
    const int64_t lanes = Floats::Lanes(), columns = block.columns, size = a.p.value_size;
    std::fill(d_out.begin(), d_out.end(), 0.0f);
    std::fill(outputs.begin(), outputs.end(), 0.0f);
    block.ReadTurned(call.floats(kGradients), size, d_out.data());
    block.ReadTurned(call.floats(kOutputs), size, outputs.data());
    std::fill_n(log_sum_exp, kMaxColumns, 0.0f);
    for (int64_t lane = 0; lane < block.n_queries; ++lane) {
      const float value = call.in<float>(kLogSumExp)[block.row(lane)];
      // For a query that sees no key all weights are 0, exp(-infinity - infinity).
      log_sum_exp[lane] = value == -kInfinity ? kInfinity : value;
    }
    for (int64_t c = 0; c < columns; c += lanes) {
      Floats sum(0.0f);
      for (int64_t i = c; i < size * columns; i += columns) {
        sum = fma(Floats::Load(d_out.data() + i), Floats::Load(outputs.data() + i), sum);
      }
      sum.Store(mean + c);
    }
  }

  // For the keys that were read: the weights of the values, and d loss / d (k q^T scale).
  void Compute(bool before_cap) {
    const AttentionParams& p = a.p;
    const int64_t lanes = Floats::Lanes(), columns = block.columns, n = block.n_keys;
    block.Score();
    Multiply<false>(n, columns, block.v, p.value_size, 1, p.value_size, d_out.data(), columns,
                    d_scores.data(), columns);
    block.Drop(d_scores.data());
    for (int64_t c = 0; c < columns; c += lanes) {
      const Floats base = Floats::Load(log_sum_exp + c), middle = Floats::Load(mean + c);
      for (int64_t at = c; at < n * columns; at += columns) {
        const Floats w = Weight(Floats::Load(block.scores.data() + at) - base);
        w.Store(weights.data() + at);
        Floats d = w * (Floats::Load(d_scores.data() + at) - middle);
        if (before_cap && p.soft_cap > 0) d = d * Floats::Load(block.slopes.data() + at);
        d.Store(d_scores.data() + at);
      }
    }
    block.Drop(weights.data());
  }

  const Attention& a;
  AttentionBlock block;
  std::vector<float> d_out, outputs;     // turned
  std::vector<float> weights, d_scores;  // [keys][columns]
  float log_sum_exp[kMaxColumns], mean[kMaxColumns];
};

struct GradRoom : BackwardRoom {
  explicit GradRoom(const Attention& attention)
      : BackwardRoom(attention),
        q_line(RoundUp(a.p.size, Floats::Lanes())),
        v_line(RoundUp(a.p.value_size, Floats::Lanes())),
        q_rows(a.Columns() * q_line),
        d_out_rows(a.Columns() * v_line),
        d_q(block.Room(a.p.size)) {}

  int64_t q_line, v_line;                 // whole vectors
  std::vector<float> q_rows, d_out_rows;  // as they lie in memory, for the keys' gradients
  std::vector<float> d_q;                 // turned
};

// d_q of a block, and its part of d_k and d_v, in lines of whole vectors.
void AddGradients(const CpuCall& call, GradRoom* my, float* d_k, float* d_v,
                  const MutableFloatArray& d_q) {
  const AttentionParams& p = my->a.p;
  AttentionBlock& block = my->block;
  my->Begin(call);
  std::fill(my->q_rows.begin(), my->q_rows.end(), 0.0f);
  std::fill(my->d_out_rows.begin(), my->d_out_rows.end(), 0.0f);
  block.ReadRows(my->a.q, p.size, my->q_line, my->q_rows.data());
  block.ReadRows(call.floats(kGradients), p.value_size, my->v_line, my->d_out_rows.data());
  std::fill(my->d_q.begin(), my->d_q.end(), 0.0f);
  const int64_t columns = block.columns;
  for (int64_t j = block.begin; j < block.end; j += kKeys) {
    const int64_t n = std::min(kKeys, block.end - j);
    block.ReadKeys(j, n);
    my->Compute(/*before_cap=*/true);
    Multiply<true>(n, my->v_line, my->weights.data(), columns, 1, columns, my->d_out_rows.data(),
                   my->v_line, d_v + j * my->v_line, my->v_line);
    Multiply<true>(n, my->q_line, my->d_scores.data(), columns, 1, columns, my->q_rows.data(),
                   my->q_line, d_k + j * my->q_line, my->q_line);
    Multiply<true>(p.size, columns, block.k, 1, p.size, n, my->d_scores.data(), columns,
                   my->d_q.data(), columns);
  }
  float factors[kMaxColumns];
  std::fill_n(factors, kMaxColumns, p.scale);
  block.WriteTurned(my->d_q.data(), p.size, factors, d_q);
}

void Grad(CpuCall& call) {
  const Attention a(call);
  const AttentionParams& p = a.p;
  const int64_t lanes = Floats::Lanes(), most_columns = a.Columns();
  const int64_t q_line = RoundUp(p.size, lanes), v_line = RoundUp(p.value_size, lanes);
  const int64_t rows = a.sharing * p.queries, blocks = (rows + most_columns - 1) / most_columns;
  const int64_t groups = int64_t{p.batch} * p.kv_heads;
  // Queries are dealt out in parts, each with its own sums of d_k and d_v, where there are few heads.
  constexpr int64_t kTasks = 8;
  const int64_t parts =
      std::clamp<int64_t>(groups > 0 ? kTasks / groups : 1, 1, std::max<int64_t>(blocks, 1));
  const int64_t n_sums = p.keys * (q_line + v_line);
  std::vector<std::vector<float>> sums(groups * parts);
  const double cycles = 3.0 * double(a.Cycles()) * double(rows) * double(groups);
  const auto write = [&](int64_t group) {
    for (int64_t part = 1; part < parts; ++part) {
      const std::vector<float>& more = sums[group * parts + part];
      for (int64_t i = 0; i < n_sums; ++i) sums[group * parts][i] += more[i];
    }
    float* const d_k = sums[group * parts].data();
    float* const d_v = d_k + p.keys * q_line;
    for (int64_t i = 0; i < p.keys * q_line; ++i) d_k[i] *= p.scale;
    const MutableFloatArray to_k = call.float_out(1), to_v = call.float_out(2);
    for (int64_t j = 0; j < p.keys; ++j) {
      const int64_t row = group * p.keys + j;
      NarrowFloats(to_k.type, d_k + j * q_line, p.size, to_k.At(row * p.size));
      NarrowFloats(to_v.type, d_v + j * v_line, p.value_size, to_v.At(row * p.value_size));
    }
    for (int64_t part = 0; part < parts; ++part)
      std::vector<float>().swap(sums[group * parts + part]);
  };
  const auto room = [&] { return std::make_unique<GradRoom>(a); };
  RunInRooms<GradRoom>(call, groups * parts, cycles, room, [&](int64_t task, GradRoom& my) {
    const int64_t group = task / parts, part = task % parts;
    sums[task].assign(n_sums, 0.0f);
    float* const d_k = sums[task].data();
    for (int64_t b = part * blocks / parts; b < (part + 1) * blocks / parts; ++b) {
      const int64_t first = b * most_columns;
      my.block.Begin(group / p.kv_heads, group % p.kv_heads, first,
                     std::min(most_columns, rows - first));
      AddGradients(call, &my, d_k, d_k + p.keys * q_line, call.float_out(0));
    }
    if (parts == 1) write(group);
  });
  if (parts == 1) return;
  call.RunTasks(groups, Threads(call, cycles), [&](int64_t group, int64_t) { write(group); });
}

// ---- of the bias
// --------------------------------------------------------------------------------------------

// A piece of the bias is one task's sums: rows of some queries, or the one that all share, and some
// keys.
void BiasGrad(CpuCall& call) {
  constexpr int64_t kPieceKeys = 512;
  const Attention a(call);
  const AttentionParams& p = a.p;
  const MutableFloatArray to = call.float_out(0);
  const int64_t columns = a.Columns();
  const int64_t blocks = (p.queries + columns - 1) / columns;
  const int64_t row_pieces = p.bias_queries > 1 ? blocks : 1;
  const int64_t key_pieces = p.bias_keys > 1 ? (p.keys + kPieceKeys - 1) / kPieceKeys : 1;
  if (call.outputs[0].n_elements == 0) return;
  const int64_t tasks = int64_t{p.bias_batch} * p.bias_heads * row_pieces * key_pieces;
  const double cycles = 2.0 * double(a.Cycles()) * p.queries * p.batch * p.heads;
  const auto room = [&] { return std::make_unique<BackwardRoom>(a); };
  RunInRooms<BackwardRoom>(call, tasks, cycles, room, [&](int64_t task, BackwardRoom& my) {
    const int64_t key_piece = task % key_pieces, row_piece = task / key_pieces % row_pieces;
    const int64_t head_of = task / key_pieces / row_pieces % p.bias_heads;
    const int64_t batch_of = task / key_pieces / row_pieces / p.bias_heads;
    // 1 is both all and one: where the bias has all, it is the size of that.
    const int64_t from = p.bias_keys > 1 ? key_piece * kPieceKeys : 0;
    const int64_t until = p.bias_keys > 1 ? std::min<int64_t>(from + kPieceKeys, p.keys) : p.keys;
    const int64_t wide = p.bias_keys > 1 ? until - from : 1;
    const int64_t first_row = p.bias_queries > 1 ? row_piece * columns : 0;
    const int64_t n_rows =
        p.bias_queries > 1 ? std::min<int64_t>(columns, p.queries - first_row) : 1;
    std::vector<float> sums(n_rows * wide, 0.0f);
    AttentionBlock& block = my.block;
    for (int64_t batch = batch_of; batch < p.batch; batch += p.bias_batch) {
      for (int64_t head = head_of; head < p.heads; head += p.bias_heads) {
        for (int64_t b = row_piece; b < blocks; b += row_pieces) {
          block.BeginOfHead(batch, head, b * columns,
                            std::min<int64_t>(columns, p.queries - b * columns));
          my.Begin(call);
          for (int64_t j = std::max(block.begin, from); j < std::min(block.end, until);) {
            const int64_t n = std::min({kKeys, block.end - j, until - j});
            block.ReadKeys(j, n);
            my.Compute(/*before_cap=*/false);
            for (int64_t i = 0; i < n; ++i) {
              const float* const d = my.d_scores.data() + i * block.columns;
              const int64_t key = p.bias_keys > 1 ? j + i - from : 0;
              for (int64_t lane = 0; lane < block.n_queries; ++lane) {
                sums[(n_rows > 1 ? lane : 0) * wide + key] += d[lane];
              }
            }
            j += n;
          }
        }
      }
    }
    const int64_t head_at = (batch_of * p.bias_heads + head_of) * p.bias_queries + first_row;
    for (int64_t r = 0; r < n_rows; ++r) {
      NarrowFloats(to.type, sums.data() + r * wide, wide,
                   to.At((head_at + r) * p.bias_keys + (p.bias_keys > 1 ? from : 0)));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("ScaledDotProductAttention", Forward);
SIMD_KERNEL("ScaledDotProductAttentionGrad", Grad);
SIMD_KERNEL("ScaledDotProductAttentionBiasGrad", BiasGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
