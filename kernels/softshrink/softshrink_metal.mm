// Softshrink and SoftshrinkGrad on the Metal device.

#include "kernels/common/encoder.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/registrar.h"
#include "kernels/softshrink/softshrink_checks.h"
#include "kernels/softshrink/softshrink_params.h"

namespace metal_ops {
namespace {

float LambdaOf(const char* op, KernelConstruction* ctx) {
  float lambda = 0.0f;
  ArgShapes attrs(op);
  if (Status status = ctx->GetAttr("lambd", &lambda); !status.ok()) ctx->Fail(status);
  CheckSoftshrinkLambda(&attrs, lambda);
  if (!attrs.ok()) ctx->Fail(ToStatus(attrs));
  return lambda;
}

class SoftshrinkOp {
 public:
  static constexpr char kOp[] = "Softshrink";
  explicit SoftshrinkOp(KernelConstruction* ctx) : lambda_(LambdaOf(kOp, ctx)) {}

  void Compute(KernelContext* ctx) {
    Tensor features, activations;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &features));
    OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(0, 0, features.shape(), &activations));
    const int64_t n = features.num_elements();
    const SoftshrinkParams params = {static_cast<uint64_t>(n), lambda_, 0};
    OP_REQUIRES_OK(
        ctx, Encode(ctx, [&](Encoder& encoder) {
          return encoder.Launch(
              {"softshrink", features.dtype()}, Grid::Flat(n),
              {{"features", features}, {"activations", activations}, {"params", params}});
        }));
  }

 private:
  const float lambda_;
};

class SoftshrinkGradOp {
 public:
  static constexpr char kOp[] = "SoftshrinkGrad";
  explicit SoftshrinkGradOp(KernelConstruction* ctx) : lambda_(LambdaOf(kOp, ctx)) {}

  void Compute(KernelContext* ctx) {
    Tensor gradients, features, backprops;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &gradients));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &features));
    ArgShapes shapes(kOp);
    CheckSoftshrinkGrad(&shapes, ShapesOf(gradients, features));
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(0, 0, features.shape(), &backprops));
    const int64_t n = features.num_elements();
    const SoftshrinkParams params = {static_cast<uint64_t>(n), lambda_, 0};
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"softshrink_grad", features.dtype()}, Grid::Flat(n),
                                           {{"gradients", gradients},
                                            {"features", features},
                                            {"backprops", backprops},
                                            {"params", params}});
                   }));
  }

 private:
  const float lambda_;
};

REGISTER_METAL_KERNEL(SoftshrinkOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(SoftshrinkGradOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
