// MetalFusedMatMul: products of matrices and the ops after them - bias or batch norm, residual,
// activation - in one pass over memory.

#include "kernels/gemm/fused_call.h"
#include "kernels/gemm/matmul_checks.h"

namespace metal_ops {
namespace {

void CheckFusedMatMul(OpCall& call) {
  ArgShape product;
  CheckMatMul(&call.shapes, call.in_shapes[0], call.in_shapes[1], call.Bool("transpose_a"),
              call.Bool("transpose_b"), &product);
  CheckFusedCall(call, product, product.rank() - 1);
}

DECLARE_OP("MetalFusedMatMul")
    .Doc(R"doc(
Products of matrices and what follows them, in one op: sums and what follows in float32, rounded once.

fused_ops is [BiasAdd or BatchNorm], [Add], [activation] in this order, each optional, one at least.)doc")
    .With(FusedTypes)
    .Attr("transpose_a: bool = false", "Whether a's last two dimensions are exchanged.")
    .Attr("transpose_b: bool = false", "Whether b's last two dimensions are exchanged.")
    .With(FusedAttrs)
    .Input("a: T", "any", "[..., m, k], or [..., k, m] if transposed.")
    .Input("b: T", "any",
           "[..., k, n], or [..., n, k] if transposed. The leading dimensions of a and b are "
           "broadcast.")
    .Input("args: TArgs", "any",
           "The arguments of fused_ops, in their order. BiasAdd: bias of T. BatchNorm: gamma, "
           "beta, mean, variance of float32, or scale, shift of T or float32. All of these are "
           "[n]. Add: a residual of T, shaped like product.")
    .Output("product: T", "any", "[..., m, n].")
    .CheckAttrs(CheckFusedAttrs)
    .Check(CheckFusedMatMul);

}  // namespace
}  // namespace metal_ops
