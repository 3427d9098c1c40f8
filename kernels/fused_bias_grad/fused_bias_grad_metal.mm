// MetalFusedBiasGrad on the Metal device.

#include "kernels/fused_bias_grad/fused_bias_grad_call.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

// How many columns a thread has: one where threads run at once and their loads join, else as many as
// fill vectors. METAL_OPS_BIAS_GRAD, or the device.
Status ChooseColumns(int* columns) {
  bool one = ThreadgroupsRunAtOnce();
  RETURN_IF_ERROR(AskedFor("METAL_OPS_BIAS_GRAD", "threads", "columns", &one));
  *columns = one ? 1 : BIAS_GRAD_COLUMNS;
  return Status();
}

Status FusedBiasGrad(MetalCall& call) {
  const FusedBiasGradParams params = ToFusedBiasGradParams(call);
  const DType type = call.in(0).dtype();
  int columns = 1;
  RETURN_IF_ERROR(ChooseColumns(&columns));
  Tensor parts;
  RETURN_IF_ERROR(
      call.AllocateTemp(DType::kFloat, {std::max(params.n_parts, 1u), params.columns}, &parts));
  const bool planes = call.Text("data_format") == "NCHW";
  int lanes = 1;
  if (planes) RETURN_IF_ERROR(ChooseRowLanes(&lanes));
  const Shader shader = planes ? Shader{"fused_bias_grad_planes", type, lanes}
                               : Shader{"fused_bias_grad", type, columns};
  const Grid grid = planes ? Grid(lanes, params.n_parts * params.columns)
                           : Grid((params.columns + columns - 1) / columns, params.n_parts);
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch(shader, grid,
                                   {{"gradients", call.in(0)},
                                    {"features", call.in(1)},
                                    {"backprops", call.out(0)},
                                    {"parts", parts},
                                    {"params", params}}));
    return encoder.Launch({"fused_bias_grad_sum", type}, Grid(params.columns),
                          {{"parts", parts}, {"d_bias", call.out(1)}, {"params", params}});
  });
}
METAL_KERNEL("MetalFusedBiasGrad", FusedBiasGrad);

}  // namespace
}  // namespace metal_ops
