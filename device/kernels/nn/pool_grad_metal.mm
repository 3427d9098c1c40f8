// MaxPoolGrad and AvgPoolGrad.

#include "device/kernels/layout.h"
#include "device/kernels/nn/windows.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

Status CheckOutput(const char* op, const char* name, const Tensor& tensor, const Shape& shape) {
  if (tensor.shape() == shape) return Status();
  return InvalidArgument(op, ": ", name, " must have shape ", ToString(shape),
                         ", that of the pooled input, got ", ToString(tensor.shape()));
}

class MaxPoolGradOp {
 public:
  static constexpr char kOp[] = "MaxPoolGrad";

  explicit MaxPoolGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Get(ctx, kOp, /*has_explicit=*/true, /*has_depth=*/false));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor in, pooled, d_pooled, d_in;
    ConvSizes sizes;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    RETURN_IF_ERROR(ctx->Input(1, &pooled));
    RETURN_IF_ERROR(ctx->Input(2, &d_pooled));
    RETURN_IF_ERROR(attrs_.Sizes(kOp, in.shape(), &sizes));
    const bool nchw = attrs_.conv.nchw;
    RETURN_IF_ERROR(CheckOutput(kOp, "orig_output", pooled, sizes.OutputShape(nchw)));
    RETURN_IF_ERROR(CheckOutput(kOp, "grad", d_pooled, sizes.OutputShape(nchw)));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, in.shape(), &d_in));
    if (d_in.num_elements() == 0) return Status();
    WindowParams params;
    RETURN_IF_ERROR(PlanWindows(kOp, sizes, nchw, &params));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          WindowShader("max_pool_grad", in.dtype(), sizes, nchw), InputGrid(sizes, nchw),
          {{"in", in}, {"pooled", pooled}, {"d_pooled", d_pooled}, {"d_in", d_in}, {"p", params}});
    });
  }

  PoolAttrs attrs_;
};
REGISTER_METAL_KERNEL(MaxPoolGradOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

class AvgPoolGradOp {
 public:
  static constexpr char kOp[] = "AvgPoolGrad";

  explicit AvgPoolGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Get(ctx, kOp, /*has_explicit=*/false, /*has_depth=*/false));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor shape_tensor, d_pooled, d_in;
    Shape shape;
    ConvSizes sizes;
    RETURN_IF_ERROR(ctx->Input(0, &shape_tensor));
    RETURN_IF_ERROR(ctx->Input(1, &d_pooled));
    RETURN_IF_ERROR(Indices(kOp, "orig_input_shape", shape_tensor, &shape));
    if (shape.size() != 4 || NumElements(shape) < 0) {
      return InvalidArgument("AvgPoolGrad: orig_input_shape must be 4 sizes >= 0, got ",
                             ToString(shape));
    }
    RETURN_IF_ERROR(attrs_.Sizes(kOp, shape, &sizes));
    const bool nchw = attrs_.conv.nchw;
    RETURN_IF_ERROR(CheckOutput(kOp, "grad", d_pooled, sizes.OutputShape(nchw)));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_in));
    if (d_in.num_elements() == 0) return Status();
    WindowParams params;
    RETURN_IF_ERROR(PlanWindows(kOp, sizes, nchw, &params));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(WindowShader("avg_pool_grad", d_in.dtype(), sizes, nchw),
                            InputGrid(sizes, nchw),
                            {{"d_pooled", d_pooled}, {"d_in", d_in}, {"p", params}});
    });
  }

  PoolAttrs attrs_;
};
REGISTER_METAL_KERNEL(AvgPoolGradOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("orig_input_shape"));

}  // namespace
}  // namespace metal_ops
