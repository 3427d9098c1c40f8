// AddV2, Sub, Mul, RealDiv with broadcasting; Neg, Square, Sqrt, Reciprocal, Rsqrt; AddN.
//
// No int32 here or in the files beside: TensorFlow keeps int32 tensors of "GPU" ops in host memory
// (they are shapes and indices) and brings kernels of its own for them.

#include <vector>

#include "device/kernels/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

struct AddV2 {
  static constexpr char kOp[] = "AddV2";
  static constexpr char kShader[] = "add";
};
struct Sub {
  static constexpr char kOp[] = "Sub";
  static constexpr char kShader[] = "sub";
};
struct Mul {
  static constexpr char kOp[] = "Mul";
  static constexpr char kShader[] = "mul";
};
struct RealDiv {
  static constexpr char kOp[] = "RealDiv";
  static constexpr char kShader[] = "div";
};
REGISTER_METAL_KERNEL(BinaryOp<AddV2>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64}));
REGISTER_METAL_KERNEL(BinaryOp<Sub>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64}));
REGISTER_METAL_KERNEL(BinaryOp<Mul>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64}));
REGISTER_METAL_KERNEL(BinaryOp<RealDiv>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

// By zero they give what the device gives, as on TensorFlow's other GPUs: nobody looks at values.
struct FloorDiv {
  static constexpr char kOp[] = "FloorDiv";
  static constexpr char kShader[] = "floor_div";
};
struct FloorMod {
  static constexpr char kOp[] = "FloorMod";
  static constexpr char kShader[] = "floor_mod";
};
REGISTER_METAL_KERNEL(BinaryOp<FloorDiv>, .Types("T", {TF_INT64}));
REGISTER_METAL_KERNEL(BinaryOp<FloorMod>, .Types("T", {TF_INT64}));

#define COMPARISON(op, shader, swapped)       \
  struct op {                                 \
    static constexpr char kOp[] = #op;        \
    static constexpr char kShader[] = shader; \
    static constexpr bool kSwapped = swapped; \
  };                                          \
  REGISTER_METAL_KERNEL(ComparisonOp<op>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64}))
COMPARISON(Greater, "greater", false);
COMPARISON(GreaterEqual, "greater_equal", false);
COMPARISON(Less, "greater", true);
COMPARISON(LessEqual, "greater_equal", true);
#undef COMPARISON

// ---- unary --------------------------------------------------------------------------------------

struct Neg {
  static constexpr char kOp[] = "Neg";
  static constexpr char kShader[] = "neg";
};
struct Square {
  static constexpr char kOp[] = "Square";
  static constexpr char kShader[] = "square";
};
struct Sqrt {
  static constexpr char kOp[] = "Sqrt";
  static constexpr char kShader[] = "sqrt";
};
// TensorFlow turns 1 / x and x / sqrt(y) into these after it has placed the division here.
struct Reciprocal {
  static constexpr char kOp[] = "Reciprocal";
  static constexpr char kShader[] = "reciprocal";
};
struct Rsqrt {
  static constexpr char kOp[] = "Rsqrt";
  static constexpr char kShader[] = "rsqrt";
};
REGISTER_METAL_KERNEL(UnaryOp<Neg>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64}));
REGISTER_METAL_KERNEL(UnaryOp<Square>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64}));
REGISTER_METAL_KERNEL(UnaryOp<Sqrt>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(UnaryOp<Reciprocal>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));
REGISTER_METAL_KERNEL(UnaryOp<Rsqrt>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

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
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     for (size_t first = 0; first < inputs.size();) {
                       static const char* const kNames[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
                       std::vector<Argument> arguments = {{"out", out}};
                       AddNParams params = {};
                       // Later passes add to what is there, so the sum takes the first place.
                       if (first != 0) arguments.push_back({kNames[params.inputs++], out});
                       while (params.inputs < ADD_N_INPUTS && first < inputs.size()) {
                         arguments.push_back({kNames[params.inputs++], inputs[first++]});
                       }
                       for (uint32_t i = params.inputs; i < ADD_N_INPUTS; ++i) {
                         arguments.push_back({kNames[i], Nothing()});
                       }
                       arguments.push_back({"params", params});
                       RETURN_IF_ERROR(encoder.Launch({"add_n", out.dtype()}, grid, arguments));
                     }
                     return Status();
                   }));
  }
};
REGISTER_METAL_KERNEL(AddNOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT64}));

}  // namespace
}  // namespace metal_ops
