// FrequencyEncode and FrequencyEncodeGrad on the Metal device.

#include <string>

#include "kernels/common/encoder.h"
#include "kernels/common/metal_arg_shapes.h"
#include "kernels/common/registrar.h"
#include "kernels/frequency_encode/frequency_encode_checks.h"

namespace metal_ops {
namespace {

Status ReadAttrs(const char* op, KernelConstruction* ctx, FrequencyEncodeAttrs* attrs) {
  RETURN_IF_ERROR(ctx->GetAttr("n_frequencies", &attrs->n_frequencies));
  RETURN_IF_ERROR(ctx->GetAttr("include_input", &attrs->include_input));
  RETURN_IF_ERROR(ctx->GetAttr("times_pi", &attrs->times_pi));
  ArgShapes shapes(op);
  CheckFrequencyEncodeAttrs(&shapes, *attrs);
  return ToStatus(shapes);
}

class FrequencyEncodeOp {
 public:
  static constexpr char kOp[] = "FrequencyEncode";

  explicit FrequencyEncodeOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ReadAttrs(kOp, ctx, &attrs_));
  }

  void Compute(KernelContext* ctx) {
    Tensor inputs, outputs;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &inputs));
    ArgShapes shapes(kOp);
    CheckFrequencyEncode(&shapes, ShapesOf(inputs), attrs_);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    const int64_t n_points = inputs.dim(0), n_dims = inputs.dim(1);
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {n_points, n_dims * attrs_.Columns()}, &outputs));
    if (outputs.num_elements() == 0) return;
    const FrequencyEncodeParams params = MakeFrequencyEncodeParams(n_points, n_dims, attrs_);
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch(
                         {"frequency_encode", outputs.dtype()}, Grid::Flat(inputs.num_elements()),
                         {{"inputs", inputs}, {"outputs", outputs}, {"params", params}});
                   }));
  }

 private:
  FrequencyEncodeAttrs attrs_;
};

class FrequencyEncodeGradOp {
 public:
  static constexpr char kOp[] = "FrequencyEncodeGrad";

  explicit FrequencyEncodeGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ReadAttrs(kOp, ctx, &attrs_));
  }

  void Compute(KernelContext* ctx) {
    Tensor gradients, inputs, inputs_gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &gradients));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &inputs));
    ArgShapes shapes(kOp);
    CheckFrequencyEncode(&shapes, ShapesOf(gradients, inputs), attrs_);
    OP_REQUIRES_OK(ctx, ToStatus(shapes));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, inputs.shape(), &inputs_gradient));
    if (inputs.num_elements() == 0) return;
    const FrequencyEncodeParams params =
        MakeFrequencyEncodeParams(inputs.dim(0), inputs.dim(1), attrs_);
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"frequency_encode_grad", gradients.dtype()},
                                           Grid::Flat(inputs.num_elements()),
                                           {{"gradients", gradients},
                                            {"inputs", inputs},
                                            {"inputs_gradient", inputs_gradient},
                                            {"params", params}});
                   }));
  }

 private:
  FrequencyEncodeAttrs attrs_;
};

REGISTER_METAL_KERNEL(FrequencyEncodeOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(FrequencyEncodeGradOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
