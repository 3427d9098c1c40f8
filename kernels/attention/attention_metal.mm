// ScaledDotProductAttention and its gradients on the Metal device.

#include <algorithm>

#include "kernels/attention/attention_plan.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// Shared by all launches of one call.
class Launcher {
 public:
  explicit Launcher(MetalCall& call) : call_(call), p_(PlanAttention(call)) {}

  // METAL_OPS_ATTENTION, or the device. Threads have one query or key where they run at once, else a
  // vector of them; simdgroups have them together where the matrix unit takes the type, and four of
  // them where it reads threadgroup memory itself. Gradients are by simdgroups then; those of heads
  // beyond 128, and of a bias, by threads. Parts are joined by who is the last to have one where that
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
    return encoder.Launch({"attention_means", type()}, Grid(p_.queries, p_.heads, p_.batch),
                          {{"outputs", call_.in(kOutputs)},
                           {"d_outputs", call_.in(kGradients)},
                           {"means", means_},
                           {"params", p_}});
  }
  Status Queries(Encoder& encoder) {
    std::vector<Argument> arguments = BackwardInputs();
    arguments.push_back({"d_q", call_.out(0)});
    return LaunchGradient(encoder, "attention_groups_d_q", "attention_d_q", p_.queries, p_.heads,
                          arguments);
  }
  Status Keys(Encoder& encoder) {
    std::vector<Argument> arguments = BackwardInputs();
    arguments.push_back({"d_k", call_.out(1)});
    arguments.push_back({"d_v", call_.out(2)});
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
    return call_.AllocateTemp(DType::kFloat, {p_.batch, p_.heads, p_.queries}, &means_);
  }

 private:
  // Inputs of the gradient ops behind those of the forward one.
  static constexpr int kOutputs = 7, kLogSumExp = 8, kGradients = 9;

  // Enough simdgroups for a large GPU, and keys below which a part is not worth joining.
  static constexpr int64_t kSimdgroups = 1024, kLeastKeys = 128;
  // Two threadgroups of four for each of an H100's multiprocessors. Only GPUs whose matrix unit reads
  // threadgroup memory itself have so much of it.
  static constexpr int64_t kThreadgroups = 264, kLeastKeysOfFour = 256;
  static constexpr size_t kFoursMemory = 200 << 10;
  static_assert(std::max(kSimdgroups, kThreadgroups) < LaunchCounters::kCounts &&
                    std::max(kSimdgroups, kThreadgroups) / 2 <= LaunchCounters::kNumbers,
                "so many parts, of as many pieces, have to be counted");

  // How simdgroups are taken four at a time: see attention_params.h. The shader is named by its size.
  struct Four {
    int64_t warpgroups, keys, stages, together;
    int size, name;
  };
  static constexpr Four kFour64 = {ATTENTION_WARPGROUPS_64, 64, 64},
                        kFour128 = {ATTENTION_WARPGROUPS_128, 128, 128},
                        kFourSmall = {ATTENTION_WARPGROUPS_SMALL, 64, 0};

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
      const bool plain =
          !rows_.use_mask && !rows_.use_bias && !rows_.dropout && rows_.soft_cap <= 0;
      Shader shader("attention_warpgroups", type(), four_.name);
      shader.Constant(0, plain);
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
    arguments.push_back({"log_sum_exp", call_.in(kLogSumExp)});
    arguments.push_back({"d_outputs", call_.in(kGradients)});
    arguments.push_back({"means", means_});
    return arguments;
  }

  MetalCall& call_;
  const AttentionParams p_;
  AttentionParams rows_ = p_;  // as the forward shaders of groups have them
  Four four_ = {};
  int lanes_ = 1;
  bool groups_ = false, last_joins_ = FencesReachDevice();
  uint32_t splits_ = 1;
  Tensor means_, part_outputs_, part_log_sum_exp_;
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
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(launcher.Means(encoder));
    RETURN_IF_ERROR(launcher.Queries(encoder));
    return launcher.Keys(encoder);
  });
}
METAL_KERNEL("ScaledDotProductAttentionGrad", ScaledDotProductAttentionGrad);

Status ScaledDotProductAttentionBiasGrad(MetalCall& call) {
  Launcher launcher(call);
  RETURN_IF_ERROR(launcher.Choose());
  RETURN_IF_ERROR(launcher.AllocateMeans());
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(launcher.Means(encoder));
    return launcher.Bias(encoder);
  });
}
METAL_KERNEL("ScaledDotProductAttentionBiasGrad", ScaledDotProductAttentionBiasGrad);

}  // namespace
}  // namespace metal_ops
