// MetalFusedConv2D on the Metal device.

#include "kernels/common/gemm.h"
#include "kernels/common/gemm_plan.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/metal_conv.h"
#include "kernels/common/registrar.h"

namespace metal_ops {
namespace {

class FusedConv2DOp {
 public:
  static constexpr char kOp[] = "MetalFusedConv2D";

  explicit FusedConv2DOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
    OP_REQUIRES_OK(ctx, fused_ops_.Get(ctx));
  }

  void Compute(KernelContext* ctx) {
    Tensor input, filter, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &input));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &filter));
    ArgShapes shapes(kOp);
    ConvSizes sizes;
    CheckConv(&shapes, attrs_, ArgShape(input.shape()), ArgShape(filter.shape()), &sizes);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const Shape output = sizes.OutputShape(attrs_.nchw);
    GemmEpilogue epilogue;
    OP_REQUIRES_OK(ctx, fused_ops_.ReadArgs(ctx, kOp, input.dtype(), ArgShape(output),
                                            attrs_.dim_c(), &epilogue));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, output, &out));
    if (out.num_elements() == 0) return;
    const GemmParams params = PlanConv(&shapes, sizes, attrs_.nchw);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, RunGemm(ctx, params, input, filter, &epilogue, out));
  }

 private:
  ConvAttrs attrs_;
  FusedOpsAttrs fused_ops_;
};
REGISTER_METAL_KERNEL(FusedConv2DOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
