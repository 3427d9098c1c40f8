// Elementwise kernels: templates over a struct that names the op (kOp), the shader (kShader), and says
// whether integers of either sign share one (kSignless).

#ifndef METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_
#define METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_

#include <string>

#include "device/kernels/strided.h"
#include "kernels/runtime/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

// No int32 where TensorFlow has a kernel for it that reads and writes host memory: it keeps int32
// tensors of "GPU" ops there, which are shapes and indices.
#define METAL_DEVICE_FLOATS {TF_FLOAT, TF_HALF, TF_BFLOAT16}
#define METAL_DEVICE_NUMBERS                             \
  {TF_FLOAT, TF_HALF,  TF_BFLOAT16, TF_INT8,   TF_INT16, \
   TF_INT64, TF_UINT8, TF_UINT16,   TF_UINT32, TF_UINT64}
// With int32, as METAL_DEVICE_ALL_TYPES.
#define METAL_DEVICE_ALL_NUMBERS                                   \
  {TF_FLOAT, TF_HALF,  TF_BFLOAT16, TF_INT8,   TF_INT16, TF_INT32, \
   TF_INT64, TF_UINT8, TF_UINT16,   TF_UINT32, TF_UINT64}
#define METAL_DEVICE_SIGNED_NUMBERS {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8, TF_INT16, TF_INT64}
#define METAL_DEVICE_INTEGERS \
  {TF_INT8, TF_INT16, TF_INT32, TF_INT64, TF_UINT8, TF_UINT16, TF_UINT32, TF_UINT64}

// ELEMENTWISE_OP(UnaryOp, Acos, "acos", METAL_DEVICE_FLOATS);
#define ELEMENTWISE_NAMES(op, shader, signless)                  \
  struct op {                                                    \
    static constexpr char kOp[] = #op;                           \
    static constexpr char kShader[] = shader;                    \
    [[maybe_unused]] static constexpr bool kSignless = signless; \
  }
#define ELEMENTWISE_OP_(Kernel, op, shader, signless, ...) \
  ELEMENTWISE_NAMES(op, shader, signless);                 \
  REGISTER_METAL_KERNEL(Kernel<op>, .Types("T", __VA_ARGS__))
#define ELEMENTWISE_OP(Kernel, op, shader, ...) \
  ELEMENTWISE_OP_(Kernel, op, shader, false, __VA_ARGS__)
#define SIGNLESS_OP(Kernel, op, shader, ...) ELEMENTWISE_OP_(Kernel, op, shader, true, __VA_ARGS__)

namespace metal_ops {

// The unsigned type of an integer's or a bool's size; other types are their own.
inline DType Unsigned(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt8:
      return DType::kUint8;
    case DType::kInt16:
      return DType::kUint16;
    case DType::kInt32:
      return DType::kUint32;
    case DType::kInt64:
      return DType::kUint64;
    default:
      return dtype;
  }
}

inline bool IsFloat(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kHalf || dtype == DType::kBfloat16;
}

// Dtypes whose shaders know rows that are repeated (elementwise.metal.h).
inline bool HasRows(DType dtype) {
  return IsFloat(dtype) || dtype == DType::kInt64 || dtype == DType::kUint64;
}

// Launches a shader of two operands that are broadcast to `out`, whose shape is theirs together.
// `shader` gives it, by which of its variants; `rows` says whether it knows rows that are repeated.
template <typename ShaderOf>
Status LaunchBroadcast(KernelContext* ctx, const char* op, const ShaderOf& shader, bool rows,
                       const Tensor& a, const Tensor& b, const Tensor& out) {
  if (out.num_elements() == 0) return Status();
  // One value per thread, or a single value for all.
  if (a.shape() == b.shape() || b.rank() == 0 || a.rank() == 0) {
    const bool a_is_scalar = a.rank() == 0 && b.rank() != 0;
    const char* strides = a_is_scalar ? "01" : b.rank() == 0 && a.rank() != 0 ? "10" : "11";
    return Encode(ctx, [&](Encoder& encoder) {
      return LaunchElementwise(encoder, shader(strides), out.num_elements(),
                               {{"a", a}, {"b", b}, {"out", out}});
    });
  }
  Loop loop;
  RETURN_IF_ERROR(PlanLoop(op, out.shape(),
                           {Broadcast(a.shape(), out.shape()),
                            Broadcast(b.shape(), out.shape()),
                            {DenseStrides(out.shape())}},
                           &loop));
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch(shader(rows ? loop.variant.c_str() : "strided"), loop.grid,
                          {{"a", a}, {"b", b}, {"out", out}, {"params", loop.params}});
  });
}

// The same of a shader that is called after the operands' dtype.
inline Status LaunchBinary(KernelContext* ctx, const char* op, const char* shader, DType dtype,
                           const Tensor& a, const Tensor& b, const Tensor& out) {
  const auto of = [&](const char* variant) { return Shader(shader, dtype, variant); };
  return LaunchBroadcast(ctx, op, of, HasRows(dtype), a, b, out);
}

template <typename Op>
class BinaryOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit BinaryOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &a));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &b));
    Shape shape;
    OP_REQUIRES_OK(ctx, BroadcastShape(kOp, a.shape(), b.shape(), &shape));
    const bool in_place = a.shape() == b.shape() || b.rank() == 0 || a.rank() == 0;
    if (in_place) {
      const bool a_is_scalar = a.rank() == 0 && b.rank() != 0;
      OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(a_is_scalar ? 1 : 0, 0, shape, &out));
    } else {
      OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    }
    OP_REQUIRES_OK(ctx, LaunchBinary(ctx, kOp, Op::kShader,
                                     Op::kSignless ? Unsigned(a.dtype()) : a.dtype(), a, b, out));
  }
};

// A binary operator whose results are bools.
template <typename Op>
class ComparisonOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ComparisonOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, ctx->Input(Op::kSwapped ? 1 : 0, &a));
    OP_REQUIRES_OK(ctx, ctx->Input(Op::kSwapped ? 0 : 1, &b));
    Shape shape;
    OP_REQUIRES_OK(ctx, BroadcastShape(kOp, a.shape(), b.shape(), &shape));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    OP_REQUIRES_OK(ctx, LaunchBinary(ctx, kOp, Op::kShader, a.dtype(), a, b, out));
  }
};

template <typename Op>
class UnaryOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit UnaryOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor x, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->ForwardInputOrAllocateOutput(0, 0, x.shape(), &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     const DType dtype = Op::kSignless ? Unsigned(x.dtype()) : x.dtype();
                     return LaunchElementwise(encoder, {Op::kShader, dtype}, x.num_elements(),
                                              {{"a", x}, {"out", out}});
                   }));
  }
};

inline Status SlopeInputs(KernelContext* ctx, const char* op, Tensor* a, Tensor* b, Tensor* out) {
  RETURN_IF_ERROR(ctx->Input(0, a));
  RETURN_IF_ERROR(ctx->Input(1, b));
  if (a->shape() != b->shape()) {
    return InvalidArgument(op, ": both tensors must be of the same shape, got ",
                           ToString(a->shape()), " and ", ToString(b->shape()));
  }
  return ctx->AllocateOutput(0, a->shape(), out);
}

// Two tensors of one shape.
template <typename Op>
class SlopeOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit SlopeOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, SlopeInputs(ctx, kOp, &a, &b, &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     const DType dtype = Op::kSignless ? Unsigned(a.dtype()) : a.dtype();
                     return LaunchElementwise(encoder, {Op::kShader, dtype, "11"}, a.num_elements(),
                                              {{"a", a}, {"b", b}, {"out", out}});
                   }));
  }
};

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_
