// ShEncode and ShEncodeGrad on the Metal device.

#include <string>

#include "kernels/common/encoder.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/registrar.h"
#include "kernels/sh_encode/sh_encode_checks.h"

namespace metal_ops {
namespace {

Status ReadDegree(const char* op, KernelConstruction* ctx, int64_t* degree) {
  RETURN_IF_ERROR(ctx->GetAttr("degree", degree));
  ArgShapes shapes(op);
  CheckShDegree(&shapes, *degree);
  return ToStatus(shapes);
}

Shader ShShader(const char* stem, TF_DataType dtype, int64_t degree) {
  return Shader(stem, dtype).Constant(0, static_cast<uint32_t>(degree));
}

class ShEncodeOp {
 public:
  static constexpr char kOp[] = "ShEncode";
  explicit ShEncodeOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ReadDegree(kOp, ctx, &degree_));
  }

  void Compute(KernelContext* ctx) {
    Tensor directions, outputs;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &directions));
    ArgShapes shapes(kOp);
    CheckShEncode(&shapes, ShapesOf(directions), degree_);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const int64_t n = directions.dim(0);
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {n, degree_ * degree_}, &outputs));
    const ShEncodeParams params = MakeShEncodeParams(n, degree_);
    const Shader shader = ShShader("sh_encode", outputs.dtype(), degree_);
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch(
                         shader, Grid::Flat(n),
                         {{"directions", directions}, {"outputs", outputs}, {"params", params}});
                   }));
  }

 private:
  int64_t degree_ = 0;
};

class ShEncodeGradOp {
 public:
  static constexpr char kOp[] = "ShEncodeGrad";
  explicit ShEncodeGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ReadDegree(kOp, ctx, &degree_));
  }

  void Compute(KernelContext* ctx) {
    Tensor gradients, directions, directions_gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &gradients));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &directions));
    ArgShapes shapes(kOp);
    CheckShEncode(&shapes, ShapesOf(gradients, directions), degree_);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const int64_t n = directions.dim(0);
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, directions.shape(), &directions_gradient));
    const ShEncodeParams params = MakeShEncodeParams(n, degree_);
    const Shader shader = ShShader("sh_encode_grad", gradients.dtype(), degree_);
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch(shader, Grid::Flat(n),
                                           {{"gradients", gradients},
                                            {"directions", directions},
                                            {"directions_gradient", directions_gradient},
                                            {"params", params}});
                   }));
  }

 private:
  int64_t degree_ = 0;
};

REGISTER_METAL_KERNEL(ShEncodeOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(ShEncodeGradOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
