// ResourceFusedAdam and ResourceFusedSgd on the Metal device: the variables are updated in place,
// in one pass over memory, when the stream gets there.

#include <vector>

#include "kernels/fused_optimizer/fused_optimizer_call.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

// Rows up to this are one thread's work.
constexpr int64_t kShortRow = 32;

// `rule` names the shader's; the first `n_variables` inputs are the variable and its state.
Status Update(MetalCall& call, const char* rule, FusedUpdateParams params, int n_variables) {
  const Tensor& gradient = call.in(call.Index("gradient"));
  const int64_t n = gradient.num_elements();
  if (n == 0) return Status();
  const int64_t n_rows = gradient.rank() == 0 ? 1 : gradient.dim(0);
  const int64_t row = n / n_rows;
  params.n_elements = static_cast<uint64_t>(n);
  params.row = static_cast<uint64_t>(row);

  const DType type = gradient.dtype();
  const auto state = [&](int i) { return i < n_variables ? Value(call.in(i)) : Value(Nothing()); };
  std::vector<Argument> arguments = {{"x", call.in(0)}, {"gradient", gradient}, {"params", params},
                                     {"m", state(1)},   {"v", state(2)},        {"hat", state(3)}};
  const bool rows = call.Bool("skip_zero_rows");
  if (!rows || row <= kShortRow) {
    return call.Launch({"fused", rule, rows ? "short_rows" : "", type},
                       Grid::Flat(rows ? n_rows : n), arguments);
  }
  Tensor used;
  RETURN_IF_ERROR(call.AllocateTemp(DType::kUint8, {n_rows}, &used));
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch({"fused_used_rows", type}, Grid::Flat(n_rows),
                                   {{"gradient", gradient}, {"params", params}, {"used", used}}));
    arguments.push_back({"used", used});
    return encoder.Launch({"fused", rule, "long_rows", type}, Grid(row, n_rows), arguments);
  });
}

Status FusedAdam(MetalCall& call) {
  FusedUpdateParams params = {};
  params.adam = ToAdamParams<float>(call);
  const int n_hats = static_cast<int>(call.Int("n_hats"));
  return Update(call, n_hats == 1 ? "amsgrad" : "adam", params, 3 + n_hats);
}
METAL_KERNEL("ResourceFusedAdam", FusedAdam);

Status FusedSgd(MetalCall& call) {
  FusedUpdateParams params = {};
  params.sgd = ToSgdParams<float>(call);
  const int n_momenta = static_cast<int>(call.Int("n_momenta"));
  const char* const momentum = call.Bool("nesterov") ? "nesterov" : "momentum";
  return Update(call, n_momenta == 0 ? "sgd" : momentum, params, 1 + n_momenta);
}
METAL_KERNEL("ResourceFusedSgd", FusedSgd);

}  // namespace
}  // namespace metal_ops
