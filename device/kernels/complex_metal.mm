// Arithmetic of complex64: two float32 that are neighbours.

#include "device/kernels/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

template <typename Op>
class ComplexUnaryOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ComplexUnaryOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor x, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return LaunchElementwise(encoder, Op::kShader, x.num_elements(),
                                              {{"a", x}, {"out", out}});
                   }));
  }
};

template <typename Op>
class ComplexBinaryOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ComplexBinaryOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor a, b, out;
    Shape shape;
    RETURN_IF_ERROR(ctx->Input(0, &a));
    RETURN_IF_ERROR(ctx->Input(1, &b));
    RETURN_IF_ERROR(BroadcastShape(kOp, a.shape(), b.shape(), &shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    const auto shader = [](const char* variant) { return Shader(Op::kShader, variant); };
    return LaunchBroadcast(ctx, kOp, shader, /*rows=*/false, a, b, out);
  }
};

#define COMPLEX_NAMES(op, shader)             \
  struct op {                                 \
    static constexpr char kOp[] = #op;        \
    static constexpr char kShader[] = shader; \
  }
#define TO_REAL .Types("T", {TF_COMPLEX64}).Where("Tout", TF_FLOAT)
COMPLEX_NAMES(Real, "real_complex");
COMPLEX_NAMES(Imag, "imag_complex");
COMPLEX_NAMES(Angle, "angle_complex");
COMPLEX_NAMES(ComplexAbs, "abs_complex");
COMPLEX_NAMES(Conj, "conj_complex");
COMPLEX_NAMES(Neg, "neg_complex");
REGISTER_METAL_KERNEL(ComplexUnaryOp<Real>, TO_REAL);
REGISTER_METAL_KERNEL(ComplexUnaryOp<Imag>, TO_REAL);
REGISTER_METAL_KERNEL(ComplexUnaryOp<Angle>, TO_REAL);
REGISTER_METAL_KERNEL(ComplexUnaryOp<ComplexAbs>, TO_REAL);
REGISTER_METAL_KERNEL(ComplexUnaryOp<Conj>, .Types("T", {TF_COMPLEX64}));
REGISTER_METAL_KERNEL(ComplexUnaryOp<Neg>, .Types("T", {TF_COMPLEX64}));

COMPLEX_NAMES(Complex, "complex");
COMPLEX_NAMES(Add, "add_complex");
COMPLEX_NAMES(AddV2, "add_complex");
COMPLEX_NAMES(Sub, "sub_complex");
COMPLEX_NAMES(Mul, "mul_complex");
REGISTER_METAL_KERNEL(ComplexBinaryOp<Complex>,
                      .Types("T", {TF_FLOAT}).Where("Tout", TF_COMPLEX64));
REGISTER_METAL_KERNEL(ComplexBinaryOp<Add>, .Types("T", {TF_COMPLEX64}));
REGISTER_METAL_KERNEL(ComplexBinaryOp<AddV2>, .Types("T", {TF_COMPLEX64}));
REGISTER_METAL_KERNEL(ComplexBinaryOp<Sub>, .Types("T", {TF_COMPLEX64}));
REGISTER_METAL_KERNEL(ComplexBinaryOp<Mul>, .Types("T", {TF_COMPLEX64}));

}  // namespace
}  // namespace metal_ops
