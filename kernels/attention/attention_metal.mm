// ScaledDotProductAttention and its gradients on the Metal device.

#include <algorithm>

#include "kernels/attention/attention_plan.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// How simdgroups are taken four at a time: see attention_params.h. The shaders are named by their
// size; of the gradients of keys and of queries, the bytes of threadgroup memory.
struct Four {
  int64_t warpgroups, keys, stages, together;
  int size, name;
  int64_t bytes_of_keys, bytes_of_queries;
  int64_t turn_queries, turn_bytes;  // 0: there is no shader of turns
};
constexpr int64_t BytesOfKeys(int64_t size, int64_t queries, int64_t stages, int64_t) {
  return ATTENTION_GRADIENT_KV_BYTES(size, queries, stages);
}
constexpr int64_t BytesOfQueries(int64_t size, int64_t keys, int64_t stages, int64_t) {
  return ATTENTION_GRADIENT_Q_BYTES(size, keys, stages);
}
constexpr int64_t TurnQueries(int64_t queries, int64_t) { return queries; }
constexpr int64_t TurnBytes(int64_t size, int64_t queries, int64_t stages) {
  return ATTENTION_GRADIENT_TURNS_BYTES(size, queries, stages);
}
constexpr Four kFour64 = {ATTENTION_WARPGROUPS_64,
                          64,
                          64,
                          BytesOfKeys(64, ATTENTION_GRADIENT_KV_64),
                          BytesOfQueries(64, ATTENTION_GRADIENT_Q_64),
                          TurnQueries(ATTENTION_GRADIENT_TURNS_64),
                          TurnBytes(64, ATTENTION_GRADIENT_TURNS_64)},
               kFour128 = {ATTENTION_WARPGROUPS_128,
                           128,
                           128,
                           BytesOfKeys(128, ATTENTION_GRADIENT_KV_128),
                           BytesOfQueries(128, ATTENTION_GRADIENT_Q_128),
                           TurnQueries(ATTENTION_GRADIENT_TURNS_128),
                           TurnBytes(128, ATTENTION_GRADIENT_TURNS_128)},
               kFourSmall = {ATTENTION_WARPGROUPS_SMALL,
                             64,
                             0,
                             BytesOfKeys(64, ATTENTION_GRADIENT_KV_SMALL),
                             BytesOfQueries(64, ATTENTION_GRADIENT_Q_SMALL),
                             0,
                             0};

// Shared by all launches of one call.
class Launcher {
 public:
  explicit Launcher(MetalCall& call) : call_(call), p_(PlanAttention(call)) {}

  // METAL_OPS_ATTENTION, or the device. Threads have one query or key where they run at once, else a
  // vector of them; simdgroups have them together where the matrix unit takes the type, and four of
  // them where it reads threadgroup memory itself. Gradients of heads beyond 128, and of a bias, are by
  // threads then. Parts are joined by who is the last to have one where that
  // can be known (METAL_OPS_ATTENTION_JOIN, or the device), else by a launch of its own.
  Status Choose() {
    enum { kOne, kVector, kGroups, kFours };
    const bool at_once = ThreadgroupsRunAtOnce();
    int way = SimdgroupsMultiply(type()) ? kGroups : at_once ? kOne : kVector;
    size_t memory = 0;
    if (way == kGroups) RETURN_IF_ERROR(ThreadgroupMemory(&memory));
    if (memory >= kFoursMemory) way = kFours;
    RETURN_IF_ERROR(
        AskedFor("METAL_OPS_ATTENTION", {"one", "vector", "groups", "warpgroups"}, &way));
    RETURN_IF_ERROR(AskedFor("METAL_OPS_ATTENTION_JOIN", "last", "launch", &last_joins_));
    if (last_joins_ && !FencesReachDevice()) {
      return InvalidArgument(
          "METAL_OPS_ATTENTION_JOIN is 'last', which needs fences that shaders of "
          "macOS 14 do not have; unset it, or say 'launch'");
    }
    groups_ = way >= kGroups;
    if (way == kFours && memory == 0) RETURN_IF_ERROR(ThreadgroupMemory(&memory));
    if (way == kFours && SizeOf(type()) == 2) {
      if (memory >= kFoursMemory && most_size() <= 128) {
        four_ = most_size() == 64 ? kFour64 : kFour128;
      } else if (most_size() == 64) {
        four_ = kFourSmall;
      }
    }
    lanes_ = way == kOne || (groups_ && at_once) ? 1 : ATTENTION_LANES;
    return Status();
  }

  Status AllocateParts() {
    if (!groups_) return Status();
    // One query sees the keys that all heads of its batch see: those that share keys are rows of
    // one.
    if (p_.queries == 1 && p_.left < 0 && !p_.use_mask && !p_.use_bias && !p_.dropout) {
      rows_.queries = p_.heads / p_.kv_heads;
      rows_.heads = p_.kv_heads;
      rows_.right = -1;
    }
    // Few queries are shared out by their keys, so that all of a GPU is at work.
    const int64_t pieces = Pieces(rows_.queries, queries_together()) * rows_.heads * rows_.batch;
    const int64_t busy = four_.warpgroups ? kThreadgroups : kSimdgroups;
    const int64_t least = four_.warpgroups ? kLeastKeysOfFour : kLeastKeys;
    splits_ = static_cast<uint32_t>(std::clamp<int64_t>(
        busy / std::max<int64_t>(pieces, 1), 1, std::max<int64_t>(Pieces(p_.keys, least), 1)));
    if (splits_ == 1) return Status();
    const int64_t rows = int64_t{p_.batch} * p_.heads * p_.queries;
    RETURN_IF_ERROR(
        call_.AllocateTemp(DType::kFloat, {splits_ * rows * p_.value_size}, &part_outputs_));
    return call_.AllocateTemp(DType::kFloat, {splits_ * rows}, &part_log_sum_exp_);
  }

  Status Forward(Encoder& encoder) {
    if (groups_) return ForwardByGroups(encoder);
    std::vector<Argument> arguments = Inputs();
    arguments.push_back({"outputs", call_.out(0)});
    arguments.push_back({"log_sum_exp", call_.out(1)});
    return encoder.Launch(ShaderOf("attention_forward"),
                          Grid(Pieces(p_.queries, lanes_), p_.heads, p_.batch), arguments);
  }

  // For each query; the gradients begin with them.
  Status Means(Encoder& encoder) {
    if (four_.warpgroups) {
      const char* const size = four_.size == 64 ? "64" : "128";
      return encoder.Launch({"attention_warpgroups_means", type(), size},
                            Grid(padded_queries() * four_.size / 8, p_.heads, p_.batch),
                            {{"outputs", call_.in(kOutputs)},
                             {"d_outputs", call_.in(kGradients)},
                             {"log_sum_exp", call_.in(kLogSumExp)},
                             {"pairs", means_},
                             {"turns", OrNothing(turns_ > 0, turn_counts_)},
                             {"n_turns", turns_},
                             {"params", p_}});
    }
    return encoder.Launch({"attention_means", type()}, Grid(p_.queries, p_.heads, p_.batch),
                          {{"outputs", call_.in(kOutputs)},
                           {"d_outputs", call_.in(kGradients)},
                           {"means", means_},
                           {"params", p_}});
  }
  Status Queries(Encoder& encoder) {
    std::vector<Argument> arguments = BackwardInputs();
    arguments.push_back({"d_q", call_.out(0)});
    if (four_.warpgroups) {
      return LaunchByFours(encoder, "attention_warpgroups_d_q", 128,
                           Grid(128 * Pieces(p_.queries, 64), p_.heads, p_.batch),
                           four_.bytes_of_queries, arguments);
    }
    return LaunchGradient(encoder, "attention_groups_d_q", "attention_d_q", p_.queries, p_.heads,
                          arguments);
  }
  Status Keys(Encoder& encoder) {
    std::vector<Argument> arguments = BackwardInputs();
    arguments.push_back({"d_k", call_.out(1)});
    arguments.push_back({"d_v", call_.out(2)});
    if (four_.warpgroups) {
      return LaunchByFours(encoder, "attention_warpgroups_d_kv", 128,
                           Grid(128 * Pieces(p_.keys, 64), p_.kv_heads, p_.batch),
                           four_.bytes_of_keys, arguments);
    }
    return LaunchGradient(encoder, "attention_groups_d_kv", "attention_d_kv", p_.keys, p_.kv_heads,
                          arguments);
  }
  Status Bias(Encoder& encoder) {
    std::vector<Argument> arguments = BackwardInputs();
    arguments.push_back({"d_bias", call_.out(0)});
    return encoder.Launch(
        ShaderOf("attention_d_bias"),
        Grid(Pieces(p_.bias_keys, lanes_), Pieces(p_.bias_queries, ATTENTION_STEP),
             int64_t{p_.bias_heads} * p_.bias_batch),
        arguments);
  }

  Status AllocateMeans() {
    // Pairs, which also are there for queries behind the last.
    const int64_t n = four_.warpgroups ? 2 * padded_queries() : p_.queries;
    return call_.AllocateTemp(DType::kFloat, {p_.batch, p_.heads, n}, &means_);
  }
  // Whether the sums of queries are taken in turns by those who have keys, which is one pass for
  // two; with few keys most of a GPU would wait.
  Status ChooseTurns() {
    const int64_t groups = Pieces(p_.keys, kTurnKeys) * p_.kv_heads * p_.batch;
    if (four_.turn_queries == 0 || groups < kLeastTurnGroups || p_.keys < kLeastTurnKeys) {
      return Status();
    }
    const int64_t rows = int64_t{p_.batch} * p_.heads * padded_queries();
    turns_ = static_cast<uint32_t>(rows / four_.turn_queries + 1);
    RETURN_IF_ERROR(call_.AllocateTemp(DType::kInt32, {turns_}, &turn_counts_));
    return call_.AllocateTemp(DType::kFloat, {rows * four_.size}, &query_sums_);
  }
  bool in_turns() const { return turns_ > 0; }
  Status Turns(Encoder& encoder) {
    std::vector<Argument> arguments = BackwardInputs();
    arguments.push_back({"d_k", call_.out(1)});
    arguments.push_back({"d_v", call_.out(2)});
    arguments.push_back({"q_sums", query_sums_});
    arguments.push_back({"turns", turn_counts_});
    constexpr int64_t kThreads = ATTENTION_GRADIENT_TURNS_THREADS;
    const int64_t groups = Pieces(p_.keys, kTurnKeys) * p_.kv_heads * p_.batch;
    RETURN_IF_ERROR(LaunchByFours(encoder, "attention_turns_d_all", kThreads,
                                  Grid(kThreads * groups), four_.turn_bytes, arguments));
    return LaunchByFours(
        encoder, "attention_turns_d_q", 256,
        Grid(256 * padded_queries() / four_.turn_queries, p_.heads, p_.batch), 0,
        {{"q_sums", query_sums_}, {"turns", turn_counts_}, {"d_q", call_.out(0)}, {"params", p_}});
  }
  // For what four simdgroups do not do together.
  void LeaveFours() { four_ = {}; }

 private:
  // Inputs of the gradient ops behind those of the forward one.
  static constexpr int kOutputs = 7, kLogSumExp = 8, kGradients = 9;

  // Enough simdgroups for a large GPU, and keys below which a part is not worth joining.
  static constexpr int64_t kSimdgroups = 1024, kLeastKeys = 128;
  // Two threadgroups of four for each of an H100's multiprocessors. Only GPUs whose matrix unit reads
  // threadgroup memory itself have so much of it.
  static constexpr int64_t kThreadgroups = 264, kLeastKeysOfFour = 256;
  static constexpr size_t kFoursMemory = 200 << 10;
  // Threadgroups of 128 keys each, enough of them that one at a time on each of an H200's
  // multiprocessors is quicker than two smaller ones that multiply more, and keys of a head.
  static constexpr int64_t kTurnKeys = 128, kLeastTurnGroups = 256, kLeastTurnKeys = 1024;
  static_assert(std::max(kSimdgroups, kThreadgroups) < LaunchCounters::kCounts &&
                    std::max(kSimdgroups, kThreadgroups) / 2 <= LaunchCounters::kNumbers,
                "so many parts, of as many pieces, have to be counted");

  Status ThreadgroupMemory(size_t* bytes) {
    return call_.Encode([&](Encoder& encoder) { return encoder.MostThreadgroupMemory(bytes); });
  }
  int64_t queries_together() const {
    return four_.warpgroups ? 64 * four_.warpgroups : ATTENTION_GROUP_ROWS;
  }

  int most_size() const {
    const uint32_t size = std::max(p_.size, p_.value_size);
    return size <= 64 ? 64 : size <= 128 ? 128 : 256;
  }

  int64_t padded_queries() const {
    return Pieces(p_.queries, ATTENTION_GRADIENT_PIECE) * ATTENTION_GRADIENT_PIECE;
  }
  bool is_plain() const { return !p_.use_mask && !p_.use_bias && !p_.dropout && p_.soft_cap <= 0; }
  Status LaunchByFours(Encoder& encoder, const char* stem, int64_t threads, Grid grid,
                       int64_t bytes, std::vector<Argument> arguments) const {
    if (bytes > 0) arguments.push_back({"memory", Value::Threadgroup(size_t(bytes))});
    Shader shader(stem, type(), four_.name);
    shader.Constant(0, is_plain());
    return encoder.Launch(shader, grid.InGroupsOf(threads, 1, 1), arguments);
  }

  // For n queries or keys of so many heads.
  Status LaunchGradient(Encoder& encoder, const char* by_groups, const char* by_threads, int64_t n,
                        int64_t heads, const std::vector<Argument>& arguments) const {
    if (groups_ && most_size() <= 128) {
      return encoder.Launch({by_groups, type(), most_size()},
                            Grid(32 * Pieces(n, ATTENTION_GROUP_ROWS), heads, p_.batch), arguments);
    }
    return encoder.Launch(ShaderOf(by_threads), Grid(Pieces(n, lanes_), heads, p_.batch),
                          arguments);
  }

  Status ForwardByGroups(Encoder& encoder) {
    std::vector<Argument> arguments = Inputs();
    arguments.push_back({"outputs", call_.out(0)});
    arguments.push_back({"log_sum_exp", call_.out(1)});
    arguments.push_back({"part_outputs", OrNothing(splits_ > 1, part_outputs_)});
    arguments.push_back({"part_log_sum_exp", OrNothing(splits_ > 1, part_log_sum_exp_)});
    AttentionSplits splits = {splits_, 0};
    LaunchCounters counters;
    if (splits_ > 1 && last_joins_) {
      RETURN_IF_ERROR(encoder.Counters(&counters));
      splits.begin = counters.begin;
    }
    arguments.push_back({"splits", splits});
    arguments.push_back({"counters", Value::Buffer(counters.buffer, DType::kInt32)});
    const int64_t pieces = Pieces(rows_.queries, queries_together());
    const int64_t parts = int64_t{rows_.batch} * splits_;
    if (four_.warpgroups) {
      const size_t bytes =
          ATTENTION_WARPGROUP_BYTES(size_t(four_.size), four_.warpgroups, four_.keys, four_.stages);
      arguments.push_back({"memory", Value::Threadgroup(bytes)});
      const int64_t threads = 128 * four_.warpgroups;
      Shader shader("attention_warpgroups", type(), four_.name);
      shader.Constant(0, is_plain());
      RETURN_IF_ERROR(encoder.Launch(
          shader, Grid(threads * pieces, rows_.heads, parts).InGroupsOf(threads, 1, 1), arguments));
    } else {
      RETURN_IF_ERROR(encoder.Launch({"attention_groups", type(), most_size()},
                                     Grid(32 * pieces, rows_.heads, parts), arguments));
    }
    if (splits_ == 1 || last_joins_) return Status();
    return encoder.Launch({"attention_join", type()},
                          Grid(32, int64_t{p_.heads} * p_.queries, p_.batch),
                          {{"part_outputs", part_outputs_},
                           {"part_log_sum_exp", part_log_sum_exp_},
                           {"outputs", call_.out(0)},
                           {"log_sum_exp", call_.out(1)},
                           {"params", p_},
                           {"splits", splits}});
  }

  DType type() const { return call_.in(0).dtype(); }
  Shader ShaderOf(const char* stem) const { return {stem, type(), lanes_}; }
  static Value OrNothing(bool used, const Tensor& tensor) {
    return used ? Value(tensor) : Value(Nothing());
  }
  std::vector<Argument> Inputs() const {
    return {{"q", call_.in(0)},
            {"k", call_.in(1)},
            {"v", call_.in(2)},
            {"mask", OrNothing(p_.use_mask != 0, call_.in(3))},
            {"bias", OrNothing(p_.use_bias != 0, call_.in(4))},
            {"lengths", OrNothing(p_.use_lengths != 0, call_.in(5))},
            {"seed", call_.in(6)},
            {"params", rows_}};
  }
  std::vector<Argument> BackwardInputs() const {
    std::vector<Argument> arguments = Inputs();
    if (!four_.warpgroups) arguments.push_back({"log_sum_exp", call_.in(kLogSumExp)});
    arguments.push_back({"d_outputs", call_.in(kGradients)});
    arguments.push_back({four_.warpgroups ? "pairs" : "means", means_});
    return arguments;
  }

  MetalCall& call_;
  const AttentionParams p_;
  AttentionParams rows_ = p_;  // as the forward shaders of groups have them
  Four four_ = {};
  int lanes_ = 1;
  bool groups_ = false, last_joins_ = FencesReachDevice();
  uint32_t splits_ = 1;
  uint32_t turns_ = 0;
  Tensor means_, part_outputs_, part_log_sum_exp_, turn_counts_, query_sums_;
};

Status ScaledDotProductAttention(MetalCall& call) {
  Launcher launcher(call);
  RETURN_IF_ERROR(launcher.Choose());
  RETURN_IF_ERROR(launcher.AllocateParts());
  return call.Encode([&](Encoder& encoder) { return launcher.Forward(encoder); });
}
METAL_KERNEL("ScaledDotProductAttention", ScaledDotProductAttention);

Status ScaledDotProductAttentionGrad(MetalCall& call) {
  Launcher launcher(call);
  RETURN_IF_ERROR(launcher.Choose());
  RETURN_IF_ERROR(launcher.AllocateMeans());
  RETURN_IF_ERROR(launcher.ChooseTurns());
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(launcher.Means(encoder));
    if (launcher.in_turns()) return launcher.Turns(encoder);
    RETURN_IF_ERROR(launcher.Queries(encoder));
    return launcher.Keys(encoder);
  });
}
METAL_KERNEL("ScaledDotProductAttentionGrad", ScaledDotProductAttentionGrad);

Status ScaledDotProductAttentionBiasGrad(MetalCall& call) {
  Launcher launcher(call);
  RETURN_IF_ERROR(launcher.Choose());
  launcher.LeaveFours();
  RETURN_IF_ERROR(launcher.AllocateMeans());
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(launcher.Means(encoder));
    return launcher.Bias(encoder);
  });
}
METAL_KERNEL("ScaledDotProductAttentionBiasGrad", ScaledDotProductAttentionBiasGrad);

}  // namespace
}  // namespace metal_ops
