// MetalFusedBatchNormGrad on the Metal device: d_x holds the gradients that passed the ReLU in
// between.

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_call.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

// How many channels a thread has: one where threads run at once and their loads join, else as many as
// fill vectors. METAL_OPS_NORM_GRAD, or the device.
Status ChooseColumns(int* columns) {
  bool one = ThreadgroupsRunAtOnce();
  RETURN_IF_ERROR(AskedFor("METAL_OPS_NORM_GRAD", "threads", "columns", &one));
  *columns = one ? 1 : NORM_GRAD_COLUMNS;
  return Status();
}

Status FusedBatchNormGrad(MetalCall& call) {
  const FusedBatchNormGradParams params = ToFusedBatchNormGradParams(call);
  const Tensor &x = call.in(2), &mean = call.in(4), &d_x = call.out(0);
  int columns = 1;
  RETURN_IF_ERROR(ChooseColumns(&columns));
  Tensor parts, factors;
  RETURN_IF_ERROR(
      call.AllocateTemp(DType::kFloat, {std::max(params.n_parts, 1u), 2, params.columns}, &parts));
  RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {3, params.columns}, &factors));
  const bool planes = call.Text("data_format") == "NCHW";
  if (planes) RETURN_IF_ERROR(ChooseRowLanes(&columns));  // then they share a channel
  const Grid grid = planes ? Grid(columns, params.n_parts * params.columns)
                           : Grid((params.columns + columns - 1) / columns, params.n_parts);
  const Shader of_parts = {planes ? "norm_grad_plane_parts" : "norm_grad_parts", x.dtype(),
                           columns};
  const Shader of_d_x = {planes ? "norm_grad_plane_d_x" : "norm_grad_d_x", x.dtype(), columns};
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch(of_parts, grid,
                                   {{"gradients", call.in(0)},
                                    {"features", call.in(1)},
                                    {"x", x},
                                    {"mean", mean},
                                    {"passed", d_x},
                                    {"parts", parts},
                                    {"params", params}}));
    RETURN_IF_ERROR(encoder.Launch("norm_grad_totals", Grid(params.columns),
                                   {{"parts", parts},
                                    {"scale", call.in(3)},
                                    {"variance", call.in(5)},
                                    {"d_scale", call.out(1)},
                                    {"d_offset", call.out(2)},
                                    {"factors", factors},
                                    {"params", params}}));
    return encoder.Launch(
        of_d_x, grid,
        {{"x", x}, {"mean", mean}, {"factors", factors}, {"d_x", d_x}, {"params", params}});
  });
}
METAL_KERNEL("MetalFusedBatchNormGrad", FusedBatchNormGrad);

}  // namespace
}  // namespace metal_ops
