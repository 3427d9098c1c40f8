// Activations and their gradients, Erf, Exp, Log, Pow; Maximum, Minimum, squared difference,
// DivNoNan.

#include "device/kernels/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

#define METAL_DEVICE_FLOATS .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16})

// One line an op: its name and its shader's.
#define UNARY(op, shader)                     \
  struct op {                                 \
    static constexpr char kOp[] = #op;        \
    static constexpr char kShader[] = shader; \
  };                                          \
  REGISTER_METAL_KERNEL(UnaryOp<op>, METAL_DEVICE_FLOATS)
UNARY(Relu, "relu");
UNARY(Relu6, "relu6");
UNARY(Elu, "elu");
UNARY(Selu, "selu");
UNARY(Sigmoid, "sigmoid");
UNARY(Tanh, "tanh");
UNARY(Erf, "erf");
UNARY(Exp, "exp");
UNARY(Log, "log");
UNARY(Softplus, "softplus");
#undef UNARY

#define BINARY(op, shader)                    \
  struct op {                                 \
    static constexpr char kOp[] = #op;        \
    static constexpr char kShader[] = shader; \
  };                                          \
  REGISTER_METAL_KERNEL(BinaryOp<op>, METAL_DEVICE_FLOATS)
BINARY(Maximum, "maximum");
BINARY(Minimum, "minimum");
BINARY(SquaredDifference, "squared_difference");
BINARY(DivNoNan, "div_no_nan");
BINARY(Pow, "pow");
#undef BINARY

// Two tensors of one shape.
template <typename Op>
class SlopeOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SlopeOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &a));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &b));
    OP_REQUIRES(ctx, a.shape() == b.shape(),
                InvalidArgument(kOp, ": expected two tensors of one shape, got ",
                                ToString(a.shape()), " and ", ToString(b.shape())));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, a.shape(), &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return LaunchElementwise(encoder, {Op::kShader, a.dtype(), "11"},
                                              a.num_elements(), {{"a", a}, {"b", b}, {"out", out}});
                   }));
  }
};

#define SLOPE(op, shader)                     \
  struct op {                                 \
    static constexpr char kOp[] = #op;        \
    static constexpr char kShader[] = shader; \
  };                                          \
  REGISTER_METAL_KERNEL(SlopeOp<op>, METAL_DEVICE_FLOATS)
SLOPE(ReluGrad, "relu_grad");
SLOPE(Relu6Grad, "relu6_grad");
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
REGISTER_METAL_KERNEL(LeakyReluOp, METAL_DEVICE_FLOATS);

}  // namespace
}  // namespace metal_ops
