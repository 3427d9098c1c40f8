// Elementwise ops that are a formula in elementwise.metal, integers.metal or functions.metal and a line here; AddN.

#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Whole numbers divided by zero are whatever the device gives, as on TensorFlow's other GPUs: values are not
// checked.
SIGNLESS_OP(BinaryOp, Add, "add",
            {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8, TF_INT16, TF_INT64, TF_UINT8});
SIGNLESS_OP(BinaryOp, AddV2, "add", METAL_DEVICE_NUMBERS);
SIGNLESS_OP(BinaryOp, Sub, "sub", METAL_DEVICE_NUMBERS);
SIGNLESS_OP(BinaryOp, Mul, "mul", METAL_DEVICE_NUMBERS);
ELEMENTWISE_OP(BinaryOp, RealDiv, "div", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(BinaryOp, FloorDiv, "floor_div", METAL_DEVICE_NUMBERS);
ELEMENTWISE_OP(BinaryOp, FloorMod, "floor_mod", METAL_DEVICE_NUMBERS);
// int32 from here on where TensorFlow has no kernel for it.
ELEMENTWISE_OP(BinaryOp, Mod, "truncate_mod", {TF_FLOAT, TF_INT64});
ELEMENTWISE_OP(BinaryOp, TruncateMod, "truncate_mod", {TF_FLOAT, TF_INT64});
ELEMENTWISE_OP(BinaryOp, TruncateDiv, "truncate_div",
               {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8, TF_INT16, TF_INT32, TF_INT64, TF_UINT8,
                TF_UINT16, TF_UINT32, TF_UINT64});
ELEMENTWISE_OP(BinaryOp, Pow, "pow",
               {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8, TF_INT16, TF_INT32, TF_INT64});
SIGNLESS_OP(BinaryOp, BitwiseAnd, "bitwise_and", METAL_DEVICE_INTEGERS);
SIGNLESS_OP(BinaryOp, BitwiseOr, "bitwise_or", METAL_DEVICE_INTEGERS);
SIGNLESS_OP(BinaryOp, BitwiseXor, "bitwise_xor", METAL_DEVICE_INTEGERS);
ELEMENTWISE_OP(BinaryOp, LeftShift, "left_shift", METAL_DEVICE_INTEGERS);
ELEMENTWISE_OP(BinaryOp, RightShift, "right_shift", METAL_DEVICE_INTEGERS);
ELEMENTWISE_OP(BinaryOp, Maximum, "maximum", METAL_DEVICE_NUMBERS);
ELEMENTWISE_OP(BinaryOp, Minimum, "minimum", METAL_DEVICE_NUMBERS);
SIGNLESS_OP(BinaryOp, SquaredDifference, "squared_difference",
            {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64});
ELEMENTWISE_OP(BinaryOp, DivNoNan, "div_no_nan", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(BinaryOp, MulNoNan, "mul_no_nan", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(BinaryOp, Atan2, "atan2", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(BinaryOp, Xdivy, "xdivy", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(BinaryOp, Xlogy, "xlogy", METAL_DEVICE_FLOATS);

// The quotient of floats, and of integers without the remainder.
ELEMENTWISE_NAMES(Div, "div", false);
struct WholeDiv : Div {
  static constexpr char kShader[] = "truncate_div";
};
REGISTER_METAL_KERNEL(BinaryOp<Div>, .Types("T", METAL_DEVICE_FLOATS));
REGISTER_METAL_KERNEL(BinaryOp<WholeDiv>, .Types("T", {TF_INT8, TF_INT16, TF_INT64, TF_UINT8,
                                                       TF_UINT16, TF_UINT32, TF_UINT64}));

ELEMENTWISE_NAMES(LogicalAnd, "bitwise_and", true);
ELEMENTWISE_NAMES(LogicalOr, "bitwise_or", true);
ELEMENTWISE_NAMES(LogicalNot, "logical_not", false);
REGISTER_METAL_KERNEL(BinaryOp<LogicalAnd>);
REGISTER_METAL_KERNEL(BinaryOp<LogicalOr>);
REGISTER_METAL_KERNEL(UnaryOp<LogicalNot>);

// ---- comparisons --------------------------------------------------------------------------------

#define COMPARISON(op, shader, swapped)       \
  struct op {                                 \
    static constexpr char kOp[] = #op;        \
    static constexpr char kShader[] = shader; \
    static constexpr bool kSwapped = swapped; \
  };                                          \
  REGISTER_METAL_KERNEL(ComparisonOp<op>, .Types("T", METAL_DEVICE_NUMBERS))
COMPARISON(Greater, "greater", false);
COMPARISON(GreaterEqual, "greater_equal", false);
COMPARISON(Less, "greater", true);
COMPARISON(LessEqual, "greater_equal", true);
#undef COMPARISON

template <typename Op>
class EqualityOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit EqualityOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("incompatible_shape_error", &must_broadcast_));
  }

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &a));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &b));
    Shape shape;
    const Status broadcast = BroadcastShape(kOp, a.shape(), b.shape(), &shape);
    if (!broadcast.ok() && !must_broadcast_) {
      const bool differ = Op::kDiffer;
      OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, {}, &out));
      OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                       return EncodeSpread(encoder, kOp, differ, {}, out);
                     }));
      return;
    }
    OP_REQUIRES_OK(ctx, broadcast);
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    OP_REQUIRES_OK(ctx, LaunchBinary(ctx, kOp, Op::kShader, Unsigned(a.dtype()), a, b, out));
  }

 private:
  bool must_broadcast_ = true;
};
struct Equal {
  static constexpr char kOp[] = "Equal";
  static constexpr char kShader[] = "equal";
  static constexpr bool kDiffer = false;
};
struct NotEqual {
  static constexpr char kOp[] = "NotEqual";
  static constexpr char kShader[] = "not_equal";
  static constexpr bool kDiffer = true;
};
#define COMPARABLE                                                  \
  {TF_FLOAT, TF_HALF,   TF_BFLOAT16, TF_INT8,   TF_INT16, TF_INT64, \
   TF_UINT8, TF_UINT16, TF_UINT32,   TF_UINT64, TF_BOOL,  TF_COMPLEX64}
REGISTER_METAL_KERNEL(EqualityOp<Equal>, .Types("T", COMPARABLE));
REGISTER_METAL_KERNEL(EqualityOp<NotEqual>, .Types("T", COMPARABLE));

class ApproximateEqualOp {
 public:
  static constexpr char kOp[] = "ApproximateEqual";

  explicit ApproximateEqualOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("tolerance", &tolerance_));
  }

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, SlopeInputs(ctx, kOp, &a, &b, &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return LaunchElementwise(encoder, {"approximate_equal", a.dtype(), "11"},
                                              a.num_elements(), {{"a", a}, {"b", b}, {"out", out}},
                                              Value(tolerance_).Untyped());
                   }));
  }

 private:
  float tolerance_ = 0;
};
REGISTER_METAL_KERNEL(ApproximateEqualOp, .Types("T", {TF_FLOAT}));

// ---- unary --------------------------------------------------------------------------------------

SIGNLESS_OP(UnaryOp, Neg, "neg", METAL_DEVICE_SIGNED_NUMBERS);
SIGNLESS_OP(UnaryOp, Square, "square", METAL_DEVICE_NUMBERS);
ELEMENTWISE_OP(UnaryOp, Abs, "abs", METAL_DEVICE_SIGNED_NUMBERS);
ELEMENTWISE_OP(UnaryOp, Sign, "sign", METAL_DEVICE_SIGNED_NUMBERS);
ELEMENTWISE_OP(UnaryOp, Round, "round", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT32, TF_INT64});
ELEMENTWISE_OP(UnaryOp, Rint, "round", {TF_FLOAT});
SIGNLESS_OP(UnaryOp, Invert, "invert", METAL_DEVICE_INTEGERS);
SIGNLESS_OP(UnaryOp, PopulationCount, "population_count", METAL_DEVICE_INTEGERS);
ELEMENTWISE_OP(UnaryOp, Sqrt, "sqrt", METAL_DEVICE_FLOATS);
// TensorFlow turns 1 / x and x / sqrt(y) into these after it has placed the division here.
ELEMENTWISE_OP(UnaryOp, Reciprocal, "reciprocal", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(UnaryOp, Inv, "reciprocal", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(UnaryOp, Rsqrt, "rsqrt", METAL_DEVICE_FLOATS);

#define FUNCTION(op, shader) ELEMENTWISE_OP(UnaryOp, op, shader, METAL_DEVICE_FLOATS)
FUNCTION(Acos, "acos");
FUNCTION(Acosh, "acosh");
FUNCTION(Asin, "asin");
FUNCTION(Asinh, "asinh");
FUNCTION(Atan, "atan");
FUNCTION(Atanh, "atanh");
FUNCTION(Ceil, "ceil");
FUNCTION(Cos, "cos");
FUNCTION(Cosh, "cosh");
FUNCTION(Erfc, "erfc");
FUNCTION(Expm1, "expm1");
FUNCTION(Floor, "floor");
FUNCTION(IsFinite, "is_finite");
FUNCTION(IsInf, "is_inf");
FUNCTION(IsNan, "is_nan");
FUNCTION(Log1p, "log1p");  // and log(1 + x) into this
FUNCTION(Sin, "sin");
FUNCTION(Sinh, "sinh");
FUNCTION(Softsign, "softsign");
FUNCTION(Tan, "tan");
#undef FUNCTION

#define GRADIENT(op, shader) ELEMENTWISE_OP(SlopeOp, op, shader, METAL_DEVICE_FLOATS)
GRADIENT(SqrtGrad, "sqrt_grad");
GRADIENT(ReciprocalGrad, "reciprocal_grad");
GRADIENT(InvGrad, "reciprocal_grad");
GRADIENT(SeluGrad, "selu_grad");
GRADIENT(SoftplusGrad, "softplus_grad");
GRADIENT(SoftsignGrad, "softsign_grad");
#undef GRADIENT

// ---- AddN ---------------------------------------------------------------------------------------

class AddNOp {
 public:
  static constexpr char kOp[] = "AddN";

  explicit AddNOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    std::vector<Tensor> inputs(ctx->num_inputs());
    for (size_t i = 0; i < inputs.size(); ++i) {
      OP_REQUIRES_OK(ctx, ctx->Input(static_cast<int>(i), &inputs[i]));
      OP_REQUIRES(ctx, inputs[i].shape() == inputs[0].shape(),
                  InvalidArgument("AddN: inputs[", i, "] has shape ", ToString(inputs[i].shape()),
                                  ", expected ", ToString(inputs[0].shape()), " as inputs[0]"));
    }
    // Not forwarded: input 0 may be needed after the first eight have been added into the output.
    Tensor out;
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, inputs[0].shape(), &out));
    const Grid grid(out.num_elements());
    OP_REQUIRES_OK(
        ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
          for (size_t first = 0; first < inputs.size();) {
            static const char* const kNames[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
            std::vector<Argument> arguments = {{"out", out}};
            AddNParams params = {};
            // Later passes add to the result, so the sum takes the first place.
            if (first != 0) arguments.push_back({kNames[params.inputs++], out});
            while (params.inputs < ADD_N_INPUTS && first < inputs.size()) {
              arguments.push_back({kNames[params.inputs++], inputs[first++]});
            }
            for (uint32_t i = params.inputs; i < ADD_N_INPUTS; ++i) {
              arguments.push_back({kNames[i], Nothing()});
            }
            arguments.push_back({"params", params});
            RETURN_IF_ERROR(encoder.Launch({"add_n", Unsigned(out.dtype())}, grid, arguments));
          }
          return Status();
        }));
  }
};
REGISTER_METAL_KERNEL(AddNOp, .Types("T", METAL_DEVICE_NUMBERS));
REGISTER_METAL_KERNEL(AddNOp, .Types("T", {TF_COMPLEX64}));

}  // namespace
}  // namespace metal_ops
