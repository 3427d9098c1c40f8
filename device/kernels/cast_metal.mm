// Cast between the number types that shaders have.

#include <iterator>

#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

constexpr TF_DataType kTypes[] = {TF_FLOAT,  TF_HALF,  TF_BFLOAT16, TF_INT8,   TF_INT16,
                                  TF_INT32,  TF_INT64, TF_UINT8,    TF_UINT16, TF_UINT32,
                                  TF_UINT64, TF_BOOL,  TF_COMPLEX64};

class CastOp {
 public:
  static constexpr char kOp[] = "Cast";

  explicit CastOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Truncate", &truncate_));
    // Only tests ask to halve mantissas by cutting them off.
    OP_REQUIRES(
        ctx, !truncate_,
        Unimplemented("Cast: Truncate=true is not provided on the METAL device; place the op "
                      "on the CPU"));
  }

  void Compute(KernelContext* ctx) {
    Tensor x, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &out));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"cast", x.dtype(), out.dtype()}, Grid(x.num_elements()),
                                           {{"x", x}, {"out", out}});
                   }));
  }

 private:
  bool truncate_ = false;
};

// Pairs without a shader must stay on the CPU.
[[maybe_unused]] const bool registered = [] {
  using Thunks = KernelThunks<CastOp>;
  for (const TF_DataType to : kTypes) {
    KernelRegistrar(
        CastOp::kOp, {&Thunks::Create, &Thunks::Compute, &Thunks::Delete},
        KernelOptions().Types("SrcT", {std::begin(kTypes), std::end(kTypes)}).Where("DstT", to));
  }
  return true;
}();

}  // namespace
}  // namespace metal_ops
