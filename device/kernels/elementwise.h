// Elementwise kernels: templates over a struct that names the op (kOp) and the shader (kShader).

#ifndef METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_
#define METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_

#include <string>

#include "device/kernels/strided.h"
#include "kernels/common/encoder.h"

namespace metal_ops {

template <typename Op>
class BinaryOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit BinaryOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor a, b, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &a));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &b));
    // One value a thread, or a single value for all.
    if (a.shape() == b.shape() || b.rank() == 0 || a.rank() == 0) {
      const bool a_is_scalar = a.rank() == 0 && b.rank() != 0;
      const Tensor& larger = a_is_scalar ? b : a;
      const char* strides = a_is_scalar ? "01" : b.rank() == 0 && a.rank() != 0 ? "10" : "11";
      OP_REQUIRES_OK(
          ctx, ctx->ForwardInputOrAllocateOutput(a_is_scalar ? 1 : 0, 0, larger.shape(), &out));
      OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                       return encoder.Launch({Op::kShader, a.dtype(), strides},
                                             Grid(out.num_elements()),
                                             {{"a", a}, {"b", b}, {"out", out}});
                     }));
      return;
    }
    Shape shape;
    OP_REQUIRES_OK(ctx, BroadcastShape(kOp, a.shape(), b.shape(), &shape));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return;
    Loop loop;
    OP_REQUIRES_OK(
        ctx,
        PlanLoop(kOp, shape,
                 {Broadcast(a.shape(), shape), Broadcast(b.shape(), shape), {DenseStrides(shape)}},
                 &loop));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch(
                         {Op::kShader, a.dtype(), loop.variant}, loop.grid,
                         {{"a", a}, {"b", b}, {"out", out}, {"params", loop.params}});
                   }));
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
                     return encoder.Launch({Op::kShader, x.dtype()}, Grid(x.num_elements()),
                                           {{"x", x}, {"out", out}});
                   }));
  }
};

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_H_
