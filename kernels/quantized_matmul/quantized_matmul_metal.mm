// MetalQuantizedMatMul and MetalDequantize on the Metal device.

#include "kernels/quantized_matmul/quantized_matmul_call.h"
#include "kernels/quantized_matmul/unpacked_product.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

// Rows of x up to which codes are unpacked as they are multiplied: by few threads per row they are read
// as often as there are tiles of rows.
constexpr int64_t kFewRows = 2 * QUANTIZED_GROUP_ROWS;

Value MinimaOf(const QuantizedParams& params, const Tensor& minima) {
  return params.use_minima != 0 ? Value(minima) : Value(Nothing());
}

// Weights, [outputs, inputs].
Status Unpack(MetalCall& call, const QuantizedParams& params, int first, bool groups,
              const Tensor& weights) {
  const int64_t codes = groups ? 8 : QUANTIZED_UNIT;
  return call.Launch(
      {"quantized_unpack", weights.dtype(), call.in(first + 1).dtype(), call.Int("bits"), codes},
      Grid((params.inputs + codes - 1) / codes, params.outputs),
      {{"codes", call.in(first)},
       {"scales", call.in(first + 1)},
       {"minima", MinimaOf(params, call.in(first + 2))},
       {"to", weights},
       {"p", params}});
}

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// Simdgroups that keep a large GPU busy with reading.
constexpr int64_t kBusySimdgroups = 1536;

Status Few(MetalCall& call, const QuantizedParams& params, bool groups) {
  std::vector<Argument> arguments = {
      {"x", call.in(0)},      {"codes", call.in(1)},
      {"scales", call.in(2)}, {"minima", MinimaOf(params, call.in(3))},
      {"y", call.out(0)},     {"p", params}};
  const DType type = call.in(0).dtype(), scales = call.in(2).dtype();
  const int64_t bits = call.Int("bits");
  if (!groups) {
    return call.Launch({"quantized_few", type, scales, bits},
                       Grid(1, params.outputs, Pieces(params.rows, QUANTIZED_FEW_ROWS)), arguments);
  }
  const int64_t rows = params.rows <= 2 ? params.rows : params.rows <= 4 ? 4 : QUANTIZED_GROUP_ROWS;
  const int64_t tiles = Pieces(params.rows, rows);
  uint32_t splits = 1;
  while (splits < QUANTIZED_SIMDGROUPS &&
         Pieces(params.outputs, QUANTIZED_LINES) * tiles * splits < kBusySimdgroups) {
    splits *= 2;
  }
  arguments.push_back({"splits", splits});
  constexpr int64_t kThreads = 32 * QUANTIZED_SIMDGROUPS;
  const int64_t outputs = QUANTIZED_SIMDGROUPS / splits * QUANTIZED_LINES;
  return call.Launch(
      {"quantized_groups", type, scales, bits, rows},
      Grid(kThreads * Pieces(params.outputs, outputs), tiles).InGroupsOf(kThreads, 1, 1),
      arguments);
}

Status QuantizedMatMul(MetalCall& call) {
  const QuantizedParams params = ToQuantizedParams(call, call.Size("rows"), call.Size("inputs"), 1);
  if (params.rows == 0 || params.outputs == 0) return Status();
  bool groups = false;
  RETURN_IF_ERROR(ChooseGroups(&groups));
  // For more rows the weights are unpacked into memory, for a product of matrices.
  if (params.rows <= kFewRows || params.inputs == 0) return Few(call, params, groups);
  return UnpackedProduct(call, params.outputs, params.inputs, [&](const Tensor& weights) {
    return Unpack(call, params, 1, groups, weights);
  });
}
METAL_KERNEL("MetalQuantizedMatMul", QuantizedMatMul);

Status Dequantize(MetalCall& call) {
  const QuantizedParams params = ToQuantizedParams(call, 0, call.Int("inputs"), 0);
  bool groups = false;
  RETURN_IF_ERROR(ChooseGroups(&groups));
  return Unpack(call, params, 0, groups, call.out(0));
}
METAL_KERNEL("MetalDequantize", Dequantize);

}  // namespace
}  // namespace metal_ops
