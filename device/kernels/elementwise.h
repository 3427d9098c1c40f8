// Elementwise kernels: templates over a struct that names the op (kOp) and the shader (kShader).

#ifndef METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_
#define METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_

#include <string>

#include "device/kernels/strided.h"
#include "kernels/runtime/elementwise.h"
#include "kernels/runtime/encoder.h"

namespace metal_ops {

// Launches a shader of two operands that are broadcast to `out`, whose shape is theirs together.
inline Status LaunchBinary(KernelContext* ctx, const char* op, const char* shader, const Tensor& a,
                           const Tensor& b, const Tensor& out) {
  if (out.num_elements() == 0) return Status();
  // One value per thread, or a single value for all.
  if (a.shape() == b.shape() || b.rank() == 0 || a.rank() == 0) {
    const bool a_is_scalar = a.rank() == 0 && b.rank() != 0;
    const char* strides = a_is_scalar ? "01" : b.rank() == 0 && a.rank() != 0 ? "10" : "11";
    return Encode(ctx, [&](Encoder& encoder) {
      return LaunchElementwise(encoder, {shader, a.dtype(), strides}, out.num_elements(),
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
    return encoder.Launch({shader, a.dtype(), loop.variant}, loop.grid,
                          {{"a", a}, {"b", b}, {"out", out}, {"params", loop.params}});
  });
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
    OP_REQUIRES_OK(ctx, LaunchBinary(ctx, kOp, Op::kShader, a, b, out));
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
    OP_REQUIRES_OK(ctx, LaunchBinary(ctx, kOp, Op::kShader, a, b, out));
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
                     return LaunchElementwise(encoder, {Op::kShader, x.dtype()}, x.num_elements(),
                                              {{"a", x}, {"out", out}});
                   }));
  }
};

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_
