// NullOp on the Metal device: tensorflow-metal's on macOS, libmetal_device.so's on Linux. Part 5 of
// 6.

#include "kernels/common/encoder.h"
#include "kernels/common/registrar.h"
#include "kernels/null_op/null_op_params.h"

namespace metal_ops {
namespace {

class NullOpOp {
 public:
  static constexpr char kOp[] = "NullOp";

  explicit NullOpOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("scale", &scale_));
  }

  // Check, allocate, encode - and return: the device does the work afterwards, on its own time. The
  // tensors' memory stays alive until then, because the command buffer retains it.
  void Compute(KernelContext* ctx) {
    Tensor x, y;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &y));
    // Empty tensors have no memory.
    if (x.num_elements() == 0) return;

    NullOpParams params = {};
    params.n_elements = x.num_elements();
    params.scale = scale_;
    // The shader's arguments by their names there, which are checked. Threadgroups follow from the
    // pipeline's limit; several Launch calls in one Encode run one after the other.
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"null_op", x.dtype()}, Grid::Flat(x.num_elements()),
                                           {{"x", x}, {"y", y}, {"params", params}});
                   }));
  }

 private:
  float scale_ = 1.0f;
};

// .HostMemory("name") keeps an input on the CPU, for what Compute itself must read: shapes,
// offsets.
REGISTER_METAL_KERNEL(NullOpOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}));

}  // namespace
}  // namespace metal_ops
