// MatMul, BatchMatMulV2 and Conv2D.

#include "kernels/common/gemm.h"
#include "kernels/common/gemm_plan.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/metal_conv.h"
#include "kernels/common/registrar.h"

namespace metal_ops {
namespace {

// Zeros, which sums without terms leave, come out of the shaders like any other result.
Status RunMatMul(KernelContext* ctx, const char* op, bool transpose_a, bool transpose_b) {
  Tensor a, b, out;
  RETURN_IF_ERROR(ctx->Input(0, &a));
  RETURN_IF_ERROR(ctx->Input(1, &b));
  ArgShapes shapes(op);
  const ArgShape a_shape(a.shape()), b_shape(b.shape());
  ArgShape product;
  CheckMatMul(&shapes, a_shape, b_shape, transpose_a, transpose_b, &product);
  RETURN_IF_ERROR(ToStatus(shapes));
  RETURN_IF_ERROR(ctx->AllocateOutput(0, product.dims, &out));
  if (out.num_elements() == 0) return Status();
  const GemmParams params = PlanMatMul(
      &shapes, ToMatMulSizes(a_shape, b_shape, transpose_a, product), transpose_a, transpose_b);
  RETURN_IF_ERROR(ToStatus(shapes));
  return RunGemm(ctx, params, a, b, nullptr, out);
}

class MatMulOp {
 public:
  static constexpr char kOp[] = "MatMul";

  explicit MatMulOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_b_));
  }

  void Compute(KernelContext* ctx) {
    OP_REQUIRES_OK(ctx, RunMatMul(ctx, kOp, transpose_a_, transpose_b_));
  }

 private:
  bool transpose_a_ = false, transpose_b_ = false;
};
REGISTER_METAL_KERNEL(MatMulOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

class BatchMatMulV2Op {
 public:
  static constexpr char kOp[] = "BatchMatMulV2";

  explicit BatchMatMulV2Op(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_x", &adj_x_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("adj_y", &adj_y_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, RunMatMul(ctx, kOp, adj_x_, adj_y_)); }

 private:
  bool adj_x_ = false, adj_y_ = false;
};
REGISTER_METAL_KERNEL(BatchMatMulV2Op, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

class Conv2DOp {
 public:
  static constexpr char kOp[] = "Conv2D";

  explicit Conv2DOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
    attrs_.groups = "Grouped convolutions are not provided on the METAL device: use the CPU.";
  }

  void Compute(KernelContext* ctx) {
    Tensor input, filter, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &filter));
    ArgShapes shapes(kOp);
    ConvSizes sizes;
    CheckConv(&shapes, attrs_, ArgShape(input.shape()), ArgShape(filter.shape()), &sizes);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, sizes.OutputShape(attrs_.nchw), &out));
    if (out.num_elements() == 0) return;
    const GemmParams params = PlanConv(&shapes, sizes, attrs_.nchw);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, RunGemm(ctx, params, input, filter, nullptr, out));
  }

 private:
  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(Conv2DOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
