// MetalDynamicMatMul on the Metal device.

#include "kernels/quantized_matmul/quantized_matmul_call.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

Status DynamicMatMul(MetalCall& call) {
  const QuantizedParams params = ToQuantizedParams(call, call.Size("rows"), call.Size("inputs"), 1);
  if (params.rows == 0 || params.outputs == 0) return Status();
  const DType type = call.in(0).dtype();
  Tensor q, steps;
  RETURN_IF_ERROR(
      call.AllocateTemp(DType::kInt8, {params.rows, std::max<int64_t>(params.inputs, 1)}, &q));
  RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, {params.rows}, &steps));
  const int64_t rows = params.rows == 1 ? 1 : 4;
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch({"dynamic_rows", type},
                                   Grid(32, params.rows).InGroupsOf(32, 1, 1),
                                   {{"x", call.in(0)}, {"q", q}, {"steps", steps}, {"p", params}}));
    return encoder.Launch(
        {"dynamic_products", type, call.in(2).dtype(), call.Int("bits"), rows},
        Grid(32, params.outputs, (params.rows + rows - 1) / rows).InGroupsOf(32, 1, 1),
        {{"q", q},
         {"codes", call.in(1)},
         {"scales", call.in(2)},
         {"minima", params.use_minima != 0 ? Value(call.in(3)) : Value(Nothing())},
         {"steps", steps},
         {"y", call.out(0)},
         {"p", params}});
  });
}
METAL_KERNEL("MetalDynamicMatMul", DynamicMatMul);

}  // namespace
}  // namespace metal_ops
