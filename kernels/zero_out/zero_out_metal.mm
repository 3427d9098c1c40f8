// ZeroOut on the Metal device.

#include "kernels/common/encoder.h"
#include "kernels/common/registrar.h"

namespace metal_ops {
namespace {

class ZeroOutOp {
 public:
  static constexpr char kOp[] = "ZeroOut";

  explicit ZeroOutOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor to_zero, zeroed;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &to_zero));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, to_zero.shape(), &zeroed));
    const uint64_t n_elements = to_zero.num_elements();
    if (n_elements == 0) return;
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch(
                         {"zero_out", TF_DataTypeSize(to_zero.dtype())}, Grid::Flat(n_elements),
                         {{"to_zero", to_zero}, {"zeroed", zeroed}, {"n_elements", n_elements}});
                   }));
  }
};

// All real number types but float64, which Metal does not have.
REGISTER_METAL_KERNEL(ZeroOutOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT8, TF_INT16, TF_INT32,
                                   TF_INT64, TF_UINT8, TF_UINT16, TF_UINT32, TF_UINT64}));

}  // namespace
}  // namespace metal_ops
