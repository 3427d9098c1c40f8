// FusedMlp and FusedMlpGrad on the Metal device.
//
// Two ways: simdgroups whose rows stay in registers (fused_mlp_groups.metal, and for gradients where
// it fits fused_mlp_gradient.metal), and threads that work alone (fused_mlp.metal), for devices that
// play a threadgroup's threads one after the other.

#include <algorithm>

#include "kernels/fused_mlp/fused_mlp_plan.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

// Gradients keep the values of all layers for a part of the batch: of a size that a processor's
// cache partly holds; where simdgroups work, enough rows for all of them.
constexpr int64_t kThreadScratch = int64_t{1} << 26, kGroupScratch = int64_t{1} << 29;
// Limits of the weights' gradient.
constexpr int64_t kMostParts = 512, kMostGroups = 264;
constexpr int64_t kMostChunk = 1 << 20;

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// By groups of threads that share their reads, or by lone threads: METAL_OPS_MLP, or the device.
Status ChooseGroups(DType type, bool* groups) {
  *groups = SimdgroupsMultiply(type);
  return AskedFor("METAL_OPS_MLP", "groups", "threads", groups);
}

// Shared by all launches of one call.
class Launcher {
 public:
  Launcher(MetalCall& call, const Tensor& x, const Tensor& weights)
      : plan(call), call_(call), x_(x), weights_(weights) {
    params.sizes = plan.sizes();
    params.n_weights = static_cast<uint32_t>(plan.n_weights());
    params.shape = plan.shape;
  }

  Status Allocate() {
    RETURN_IF_ERROR(ChooseGroups(x_.dtype(), &groups_));
    const int64_t values = mlp_packed_bias(params.sizes, 0);
    const int64_t biases = plan.n_layers * MLP_MOST_COLUMNS;
    if (!groups()) return call_.AllocateTemp(DType::kFloat, {values + biases}, &packed_);
    RETURN_IF_ERROR(call_.AllocateTemp(DType::kFloat, {biases}, &biases_));
    return call_.AllocateTemp(x_.dtype(), {values}, &packed_);
  }

  Status Pack(Encoder& encoder, bool with_transposes) {
    const Grid grid(MLP_MOST_COLUMNS, MLP_MOST_COLUMNS, plan.n_layers * (with_transposes ? 2 : 1));
    if (!groups()) {
      return encoder.Launch({"fused_mlp_pack", x_.dtype()}, grid,
                            {{"weights", weights_}, {"packed", packed_}, {"params", params}});
    }
    return encoder.Launch(
        {"fused_mlp_group_pack", x_.dtype()}, grid,
        {{"weights", weights_}, {"packed", packed_}, {"biases", biases_}, {"params", params}});
  }

  Status Forward(Encoder& encoder, const Tensor& outputs) {
    if (!groups()) {
      return encoder.Launch(
          ShaderOf("fused_mlp_threads"), grid(MLP_GROUP_ROWS(plan.width)),
          {{"x", x_}, {"packed", packed_}, {"outputs", outputs}, {"params", params}});
    }
    return encoder.Launch(ShaderOf("fused_mlp_groups"), grid(MLP_GROUP_ROWS(plan.width)),
                          {{"x", x_},
                           {"packed", packed_},
                           {"biases", biases_},
                           {"outputs", outputs},
                           {"params", params}});
  }

  Status Backward(Encoder& encoder, const Tensor& d_outputs, const Tensor& scratch,
                  const Tensor& d_x) {
    if (!groups()) {
      return encoder.Launch(ShaderOf("fused_mlp_threads_backward"), grid(MLP_BACKWARD_ROWS),
                            {{"d_outputs", d_outputs},
                             {"x", x_},
                             {"packed", packed_},
                             {"scratch", scratch},
                             {"d_x", d_x},
                             {"params", params}});
    }
    return encoder.Launch(ShaderOf("fused_mlp_groups_backward"), grid(MLP_BACKWARD_ROWS),
                          {{"d_outputs", d_outputs},
                           {"x", x_},
                           {"packed", packed_},
                           {"biases", biases_},
                           {"scratch", scratch},
                           {"d_x", d_x},
                           {"params", params}});
  }

  // Whether there is a shader for the gradient in one piece. It takes 255 registers a thread: where
  // memory is shared it is for tests alone, as it has not been measured on such a GPU.
  bool InOnePiece() const {
    return groups() && x_.dtype() != DType::kFloat && mlp_gradient_fits(params.sizes) &&
           (IsDiscrete() || !ThreadgroupsRunAtOnce());
  }
  // Parts of the weights' gradient, one of each group, and d_x.
  Status Gradient(Encoder& encoder, const Tensor& d_outputs, const Tensor& d_x, const Tensor& parts,
                  int64_t n_groups) {
    Shader shader = ShaderOf("fused_mlp_gradient");
    shader.Constant(2, params.sizes.inputs)
        .Constant(3, params.sizes.outputs)
        .Constant(4, params.sizes.n_layers);
    constexpr int kThreads = 32 * MLP_GRADIENT_SIMDGROUPS;
    return encoder.Launch(shader, Grid(kThreads * n_groups).InGroupsOf(kThreads, 1, 1),
                          {{"d_outputs", d_outputs},
                           {"x", x_},
                           {"packed", packed_},
                           {"parts", parts},
                           {"d_x", d_x},
                           {"params", params}});
  }

  Status Sum(Encoder& encoder, const Tensor& parts, const Tensor& d_weights) {
    const int64_t n = plan.n_weights();
    return encoder.Launch(
        {groups() ? "fused_mlp_group_sum" : "fused_mlp_sum", weights_.dtype()},
        groups()
            ? Grid(32 * Pieces(n, 32), MLP_SUM_SIMDGROUPS).InGroupsOf(32, MLP_SUM_SIMDGROUPS, 1)
            : Grid(n),
        {{"parts", parts},
         {"d_weights", d_weights},
         {"params", params},
         {"n_parts", static_cast<uint32_t>(parts.dim(0))}});
  }

  // Parts of the gradient of one layer's weights.
  Status Weights(Encoder& encoder, int layer, const Tensor& scratch, const Tensor& parts) {
    const int64_t splits = Pieces(params.rows, params.split);
    const int64_t rows = plan.rows(layer), columns = plan.columns(layer);
    params.layer = static_cast<uint32_t>(layer);
    params.first_row = 0;
    int64_t thread_rows = rows + (plan.use_bias ? 1 : 0);
    if (groups()) {
      RETURN_IF_ERROR(encoder.Launch(
          {"fused_mlp_groups_weights", x_.dtype()},
          Grid(32 * Pieces(rows, MLP_TILE_ROWS), Pieces(columns, MLP_TILE_COLUMNS), splits),
          {{"x", x_}, {"scratch", scratch}, {"parts", parts}, {"params", params}}));
      if (!plan.use_bias) return Status();
      params.first_row = static_cast<uint32_t>(rows);
      thread_rows = 1;
    }
    return encoder.Launch(
        {"fused_mlp_threads_weights", x_.dtype()},
        Grid(Pieces(thread_rows, MLP_THREAD_ROWS), Pieces(columns, MLP_PANEL), splits),
        {{"x", x_}, {"scratch", scratch}, {"parts", parts}, {"params", params}});
  }

  bool groups() const { return groups_; }

  const MlpPlan plan;
  MlpParams params = {};

 private:
  Shader ShaderOf(const char* stem) const {
    Shader shader = groups() ? Shader(stem, x_.dtype(), plan.width) : Shader(stem, x_.dtype());
    shader.Constant(0, plan.activation).Constant(1, plan.output_activation);
    return shader;
  }
  // The grid for the rows of a chunk, `group_rows` of them per simdgroup.
  Grid grid(int64_t group_rows) const {
    const int64_t rows = params.rows;
    return groups() ? Grid(32 * Pieces(rows, group_rows)) : Grid(Pieces(rows, MLP_THREAD_ROWS));
  }

  MetalCall& call_;
  const Tensor &x_, &weights_;
  bool groups_ = false;
  Tensor packed_, biases_;
};

Status FusedMlp(MetalCall& call) {
  Launcher mlp(call, call.in(0), call.in(1));
  if (mlp.plan.batch == 0) return Status();
  RETURN_IF_ERROR(mlp.Allocate());
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(mlp.Pack(encoder, /*with_transposes=*/false));
    MlpParams& params = mlp.params;
    for (; params.first < mlp.plan.batch; params.first += kMostChunk) {
      params.rows = static_cast<uint32_t>(std::min(kMostChunk, mlp.plan.batch - params.first));
      RETURN_IF_ERROR(mlp.Forward(encoder, call.out(0)));
    }
    return Status();
  });
}
METAL_KERNEL("FusedMlp", FusedMlp);

Status FusedMlpGrad(MetalCall& call) {
  const Tensor &d_outputs = call.in(0), &x = call.in(1), &weights = call.in(2);
  Launcher mlp(call, x, weights);
  const MlpPlan& plan = mlp.plan;
  MlpParams& params = mlp.params;
  RETURN_IF_ERROR(mlp.Allocate());
  params.x_gradient = call.Bool("x_gradient") ? 1 : 0;
  Tensor scratch, parts;
  if (mlp.InOnePiece()) {
    const int64_t most =
        std::max<int64_t>(1, Pieces(std::min(kMostChunk, plan.batch), MLP_GRADIENT_ROWS));
    // As many rows in each group.
    const int64_t n_parts = Pieces(most, Pieces(most, kMostGroups));
    RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {n_parts, plan.n_weights()}, &parts));
    return call.Encode([&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(mlp.Pack(encoder, /*with_transposes=*/true));
      for (; params.first < plan.batch; params.first += kMostChunk, params.adds = 1) {
        params.rows = static_cast<uint32_t>(std::min(kMostChunk, plan.batch - params.first));
        const int64_t groups = std::min(n_parts, Pieces(params.rows, MLP_GRADIENT_ROWS));
        RETURN_IF_ERROR(mlp.Gradient(encoder, d_outputs, call.out(0), parts, groups));
      }
      return mlp.Sum(encoder, parts, call.out(1));
    });
  }
  const int64_t line = mlp_slopes_at(params.sizes, 1, plan.n_layers - 1) +
                       mlp_slopes_line(params.sizes, plan.n_layers - 1);
  const int64_t bytes = x.dtype() == DType::kFloat ? 4 : 2;
  const int64_t scratch_bytes = mlp.groups() ? kGroupScratch : kThreadScratch;
  params.chunk = std::clamp<int64_t>(plan.batch, 1, scratch_bytes / (line * bytes));
  // Whole pieces of 16 rows, except the last.
  params.split =
      static_cast<uint32_t>(16 * std::max<int64_t>(32, Pieces(params.chunk, 16 * kMostParts)));
  const int64_t n_parts = Pieces(std::min(params.chunk, plan.batch), params.split);
  RETURN_IF_ERROR(call.AllocateTemp(x.dtype(), {params.chunk * line}, &scratch));
  RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {n_parts, plan.n_weights()}, &parts));
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(mlp.Pack(encoder, /*with_transposes=*/true));
    for (; params.first < plan.batch; params.first += params.chunk, params.adds = 1) {
      params.rows = static_cast<uint32_t>(std::min(params.chunk, plan.batch - params.first));
      RETURN_IF_ERROR(mlp.Backward(encoder, d_outputs, scratch, call.out(0)));
      for (int l = 0; l < plan.n_layers; ++l) {
        RETURN_IF_ERROR(mlp.Weights(encoder, l, scratch, parts));
      }
    }
    return mlp.Sum(encoder, parts, call.out(1));
  });
}
METAL_KERNEL("FusedMlpGrad", FusedMlpGrad);

}  // namespace
}  // namespace metal_ops
