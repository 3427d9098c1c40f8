// RowNorm and its gradient on the Metal device.

#include "kernels/row_norm/row_norm_call.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

Status RowNorm(MetalCall& call) {
  RowNormParams params = ToRowNormParams(call);
  const Tensor& offset = call.in(2);
  params.use_offset = offset.num_elements() > 0 ? 1 : 0;
  int lanes = 1;
  RETURN_IF_ERROR(ChooseRowLanes(&lanes));
  return call.Launch({"row_norm", call.in(0).dtype(), lanes}, Grid(lanes, params.rows),
                     {{"x", call.in(0)},
                      {"scale", call.in(1)},
                      {"offset", params.use_offset != 0 ? Value(offset) : Value(Nothing())},
                      {"y", call.out(0)},
                      {"means", call.out(1)},
                      {"factors", call.out(2)},
                      {"params", params}});
}
METAL_KERNEL("RowNorm", RowNorm);

Status RowNormGrad(MetalCall& call) {
  const RowNormParams params = ToRowNormParams(call);
  const Tensor &d_y = call.in(0), &x = call.in(1), &means = call.in(3), &factors = call.in(4);
  const DType type = x.dtype();
  int lanes = 1;
  RETURN_IF_ERROR(ChooseRowLanes(&lanes));
  Tensor parts;
  RETURN_IF_ERROR(
      call.AllocateTemp(DType::kFloat, {std::max(params.n_parts, 1u), 2, params.columns}, &parts));
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch({"row_norm_d_x", type, lanes},
                                   params.columns == 0 ? Grid(0) : Grid(lanes, params.rows),
                                   {{"d_y", d_y},
                                    {"x", x},
                                    {"scale", call.in(2)},
                                    {"means", means},
                                    {"factors", factors},
                                    {"d_x", call.out(0)},
                                    {"params", params}}));
    RETURN_IF_ERROR(encoder.Launch({"row_norm_parts", type}, Grid(params.columns, params.n_parts),
                                   {{"d_y", d_y},
                                    {"x", x},
                                    {"means", means},
                                    {"factors", factors},
                                    {"parts", parts},
                                    {"params", params}}));
    return encoder.Launch({"row_norm_sum", type}, Grid(params.columns),
                          {{"parts", parts},
                           {"d_scale", call.out(1)},
                           {"d_offset", call.out(2)},
                           {"params", params}});
  });
}
METAL_KERNEL("RowNormGrad", RowNormGrad);

}  // namespace
}  // namespace metal_ops
