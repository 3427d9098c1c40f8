// Elementwise ops of complex64 whose formula is in complex.metal: two float32 that are neighbours.

#include "device/kernels/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Ops with a real result.
template <typename Op>
class ToRealOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ToRealOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor x, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return LaunchElementwise(encoder, {Op::kShader, x.dtype()}, x.num_elements(),
                                              {{"a", x}, {"out", out}});
                   }));
  }
};
#define TO_REAL(op, shader)             \
  ELEMENTWISE_NAMES(op, shader, false); \
  REGISTER_METAL_KERNEL(ToRealOp<op>, .Types("T", {TF_COMPLEX64}).Where("Tout", TF_FLOAT))
TO_REAL(Real, "real");
TO_REAL(Imag, "imag");
TO_REAL(Angle, "angle");
TO_REAL(ComplexAbs, "abs");

class ComplexOp {
 public:
  static constexpr char kOp[] = "Complex";

  explicit ComplexOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor a, b, out;
    Shape shape;
    RETURN_IF_ERROR(ctx->Input(0, &a));
    RETURN_IF_ERROR(ctx->Input(1, &b));
    RETURN_IF_ERROR(BroadcastShape(kOp, a.shape(), b.shape(), &shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    const auto shader = [](const char* variant) { return Shader("complex_float", variant); };
    return LaunchBroadcast(ctx, kOp, shader, /*rows=*/false, a, b, out);
  }
};
REGISTER_METAL_KERNEL(ComplexOp, .Types("T", {TF_FLOAT}).Where("Tout", TF_COMPLEX64));

#define COMPLEX(Kernel, op, shader) ELEMENTWISE_OP(Kernel, op, shader, {TF_COMPLEX64})
COMPLEX(UnaryOp, Conj, "conj");
COMPLEX(UnaryOp, Neg, "neg");
COMPLEX(UnaryOp, Sign, "sign");
COMPLEX(UnaryOp, Square, "square");
COMPLEX(UnaryOp, Reciprocal, "reciprocal");
COMPLEX(UnaryOp, Inv, "reciprocal");
COMPLEX(UnaryOp, Exp, "exp");
COMPLEX(UnaryOp, Log, "log");
COMPLEX(UnaryOp, Sqrt, "sqrt");
COMPLEX(UnaryOp, Rsqrt, "rsqrt");
COMPLEX(UnaryOp, Acos, "acos");
COMPLEX(UnaryOp, Acosh, "acosh");
COMPLEX(UnaryOp, Asin, "asin");
COMPLEX(UnaryOp, Asinh, "asinh");
COMPLEX(UnaryOp, Atan, "atan");
COMPLEX(UnaryOp, Atanh, "atanh");
COMPLEX(UnaryOp, Cos, "cos");
COMPLEX(UnaryOp, Cosh, "cosh");
COMPLEX(UnaryOp, Expm1, "expm1");
COMPLEX(UnaryOp, Log1p, "log1p");
COMPLEX(UnaryOp, Sigmoid, "sigmoid");
COMPLEX(UnaryOp, Sin, "sin");
COMPLEX(UnaryOp, Sinh, "sinh");
COMPLEX(UnaryOp, Tan, "tan");
COMPLEX(UnaryOp, Tanh, "tanh");
COMPLEX(SlopeOp, RsqrtGrad, "rsqrt_grad");
COMPLEX(SlopeOp, SigmoidGrad, "sigmoid_grad");
COMPLEX(SlopeOp, TanhGrad, "tanh_grad");
COMPLEX(SlopeOp, SqrtGrad, "sqrt_grad");
COMPLEX(SlopeOp, ReciprocalGrad, "reciprocal_grad");
COMPLEX(SlopeOp, InvGrad, "reciprocal_grad");
COMPLEX(BinaryOp, Add, "add");
COMPLEX(BinaryOp, AddV2, "add");
COMPLEX(BinaryOp, Sub, "sub");
COMPLEX(BinaryOp, Mul, "mul");
COMPLEX(BinaryOp, RealDiv, "div");
COMPLEX(BinaryOp, Div, "div");
COMPLEX(BinaryOp, DivNoNan, "div_no_nan");
COMPLEX(BinaryOp, MulNoNan, "mul_no_nan");
COMPLEX(BinaryOp, Pow, "pow");
COMPLEX(BinaryOp, Xdivy, "xdivy");
COMPLEX(BinaryOp, Xlogy, "xlogy");
COMPLEX(BinaryOp, Xlog1py, "xlog1py");
COMPLEX(BinaryOp, SquaredDifference, "squared_difference");

}  // namespace
}  // namespace metal_ops
