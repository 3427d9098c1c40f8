// MetalLookupMatMul and MetalLookupWeights on the Metal device.

#include "kernels/quantized_matmul/lookup_matmul_call.h"
#include "kernels/quantized_matmul/unpacked_product.h"

namespace metal_ops {
namespace {

// Rows of x up to which codes are looked up as they are multiplied, as often as there are tiles of rows.
constexpr int64_t kFewRows = 2 * LOOKUP_ROWS;

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// Weights, [outputs, inputs].
Status Unpack(MetalCall& call, const LookupParams& params, int first, const Tensor& weights) {
  return call.Launch(
      {"lookup_unpack", weights.dtype(), call.in(first + 1).dtype(), call.Int("bits")},
      Grid(Pieces(params.inputs, 8), params.outputs),
      {{"codes", call.in(first)}, {"tables", call.in(first + 1)}, {"to", weights}, {"p", params}});
}

Status Few(MetalCall& call, const LookupParams& params) {
  const std::vector<Argument> arguments = {{"x", call.in(0)},
                                           {"codes", call.in(1)},
                                           {"tables", call.in(2)},
                                           {"y", call.out(0)},
                                           {"p", params}};
  const DType type = call.in(0).dtype(), tables = call.in(2).dtype();
  const int64_t bits = call.Int("bits");
  bool groups = false;
  RETURN_IF_ERROR(ChooseGroups(&groups));
  if (!groups) {
    return call.Launch({"lookup_few", type, tables, bits},
                       Grid(1, params.outputs, Pieces(params.rows, LOOKUP_ROWS)), arguments);
  }
  const int64_t rows = params.rows == 1 ? 1 : LOOKUP_ROWS;
  constexpr int64_t kThreads = 32 * LOOKUP_SIMDGROUPS;
  return call.Launch(
      {"lookup_groups", type, tables, bits, rows},
      Grid(kThreads * Pieces(params.outputs, LOOKUP_SIMDGROUPS), Pieces(params.rows, rows))
          .InGroupsOf(kThreads, 1, 1),
      arguments);
}

Status LookupMatMul(MetalCall& call) {
  const LookupParams params = ToLookupParams(call, call.Size("rows"), call.Size("inputs"), 1);
  if (params.rows == 0 || params.outputs == 0) return Status();
  if (params.rows <= kFewRows || params.inputs == 0) return Few(call, params);
  return UnpackedProduct(call, params.outputs, params.inputs,
                         [&](const Tensor& weights) { return Unpack(call, params, 1, weights); });
}
METAL_KERNEL("MetalLookupMatMul", LookupMatMul);

Status LookupWeights(MetalCall& call) {
  const LookupParams params = ToLookupParams(call, 0, call.Int("inputs"), 0);
  return Unpack(call, params, 0, call.out(0));
}
METAL_KERNEL("MetalLookupWeights", LookupWeights);

}  // namespace
}  // namespace metal_ops
