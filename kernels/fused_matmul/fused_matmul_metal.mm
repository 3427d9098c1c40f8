// MetalFusedMatMul on the Metal device.

#include "kernels/common/gemm.h"
#include "kernels/common/gemm_plan.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/registrar.h"

namespace metal_ops {
namespace {

class FusedMatMulOp {
 public:
  static constexpr char kOp[] = "MetalFusedMatMul";

  explicit FusedMatMulOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_b_));
    OP_REQUIRES_OK(ctx, fused_ops_.Get(ctx));
  }

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &a));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &b));
    ArgShapes shapes(kOp);
    const ArgShape a_shape(a.shape()), b_shape(b.shape());
    ArgShape product;
    CheckMatMul(&shapes, a_shape, b_shape, transpose_a_, transpose_b_, &product);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    GemmEpilogue epilogue;
    OP_REQUIRES_OK(
        ctx, fused_ops_.ReadArgs(ctx, kOp, a.dtype(), product, product.rank() - 1, &epilogue));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, product.dims, &out));
    if (out.num_elements() == 0) return;
    const GemmParams params =
        PlanMatMul(&shapes, ToMatMulSizes(a_shape, b_shape, transpose_a_, product), transpose_a_,
                   transpose_b_);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, RunGemm(ctx, params, a, b, &epilogue, out));
  }

 private:
  bool transpose_a_ = false, transpose_b_ = false;
  FusedOpsAttrs fused_ops_;
};
REGISTER_METAL_KERNEL(FusedMatMulOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
