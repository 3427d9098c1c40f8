// Root: a product of matrices.

#include "graph/pattern.h"

namespace metal_ops::fusion {
namespace {

constexpr PatternInfo kInfo = {
    "matmul",
    Stage::kRoot,
    "MatMul,BatchMatMul,BatchMatMulV2",
    "A product of matrices, or of batches of them, each of them transposed or not.",
    R"(
   a   b
    \ /
  MatMul
    |
 what follows
)",
    R"(
   a   b   args
    \  |   /
  MetalFusedMatMul
)"};

Outcome Match(Chain* chain) {
  const NodeView& product = chain->root();
  const bool batched = product.GetOp() != "MatMul";
  if (batched && product.GetOp() != "BatchMatMul" && product.GetOp() != "BatchMatMulV2") {
    return NotMine();
  }
  const auto type = TypeAttr(product, "T");
  if (Refusal refusal = CheckType(product, type); !refusal.empty()) return Refused(refusal);
  const Shape b = chain->facts().ShapeOf(chain->facts().Input(product, 1));
  // Adjoint is transposed: these types are real.
  const bool transpose_a = BoolAttr(product, batched ? "adj_x" : "transpose_a", false);
  const bool transpose_b = BoolAttr(product, batched ? "adj_y" : "transpose_b", false);
  const int64_t columns = b.rank() < 2 ? -1 : b.dims[b.rank() - (transpose_b ? 2 : 1)];
  chain->Start("MetalFusedMatMul", type, /*nchw=*/false, columns < 0 ? -1 : columns);
  (*chain->node()->mutable_attr())["transpose_a"].set_b(transpose_a);
  (*chain->node()->mutable_attr())["transpose_b"].set_b(transpose_b);
  return Matched();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
