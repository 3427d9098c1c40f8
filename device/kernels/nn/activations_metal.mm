// Activations and their gradients, Erf, Exp, Log.

#include "device/kernels/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

ELEMENTWISE_OP(UnaryOp, Relu, "relu", METAL_DEVICE_ALL_NUMBERS);
ELEMENTWISE_OP(UnaryOp, Relu6, "relu6", METAL_DEVICE_ALL_NUMBERS);
#define UNARY(op, shader) ELEMENTWISE_OP(UnaryOp, op, shader, METAL_DEVICE_FLOATS)
UNARY(Elu, "elu");
UNARY(Selu, "selu");
UNARY(Sigmoid, "sigmoid");
UNARY(Tanh, "tanh");
UNARY(Erf, "erf");
UNARY(Exp, "exp");
UNARY(Log, "log");
UNARY(Softplus, "softplus");
#undef UNARY

ELEMENTWISE_OP(SlopeOp, ReluGrad, "relu_grad", METAL_DEVICE_ALL_NUMBERS);
SIGNLESS_OP(SlopeOp, Relu6Grad, "relu6_grad", METAL_DEVICE_ALL_NUMBERS);
#define SLOPE(op, shader) ELEMENTWISE_OP(SlopeOp, op, shader, METAL_DEVICE_FLOATS)
SLOPE(EluGrad, "elu_grad");
SLOPE(SigmoidGrad, "sigmoid_grad");
SLOPE(TanhGrad, "tanh_grad");
SLOPE(RsqrtGrad, "rsqrt_grad");
#undef SLOPE

class LeakyReluOp {
 public:
  static constexpr char kOp[] = "LeakyRelu";

  explicit LeakyReluOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("alpha", &alpha_));
  }

  void Compute(KernelContext* ctx) {
    Tensor x, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(0, 0, x.shape(), &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return LaunchElementwise(encoder, {"leaky_relu", x.dtype()}, x.num_elements(),
                                              {{"a", x}, {"out", out}}, Value(alpha_).Untyped());
                   }));
  }

 private:
  float alpha_ = 0.2f;
};
REGISTER_METAL_KERNEL(LeakyReluOp, .Types("T", METAL_DEVICE_FLOATS));

class LeakyReluGradOp {
 public:
  static constexpr char kOp[] = "LeakyReluGrad";

  explicit LeakyReluGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("alpha", &alpha_));
  }

  void Compute(KernelContext* ctx) {
    Tensor gradients, x, out;
    OP_REQUIRES_OK(ctx, SlopeInputs(ctx, kOp, &gradients, &x, &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return LaunchElementwise(
                         encoder, {"leaky_relu_grad", x.dtype(), "11"}, x.num_elements(),
                         {{"a", gradients}, {"b", x}, {"out", out}}, Value(alpha_).Untyped());
                   }));
  }

 private:
  float alpha_ = 0.2f;
};
REGISTER_METAL_KERNEL(LeakyReluGradOp, .Types("T", METAL_DEVICE_FLOATS));

}  // namespace
}  // namespace metal_ops
