// AddN and ZerosLike of variants: what gradients of loops do with TensorLists whose elements are on
// the device.

#include "device/kernels/layout.h"
#include "kernels/runtime/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "tensorflow/c/kernels_experimental.h"

namespace metal_ops {
namespace {

// TensorFlow calls these for every element, with a result it has allocated.
void AddElements(TF_OpKernelContext* raw, TF_Tensor* raw_a, TF_Tensor* raw_b, TF_Tensor* raw_out) {
  KernelContext ctx(raw);
  const Tensor a = ToTensor(raw_a), b = ToTensor(raw_b), out = ToTensor(raw_out);
  OP_REQUIRES(&ctx, ShaderType(out.dtype()) != nullptr && out.dtype() != TF_BOOL,
              Unimplemented("AddN: elements of dtype ", ToString(out.dtype()),
                            " cannot be added on the METAL device; place the op on the CPU"));
  OP_REQUIRES(&ctx, a.shape() == b.shape(),
              InvalidArgument("AddN: list elements have shapes ", ToString(a.shape()), " and ",
                              ToString(b.shape()), ", expected equal ones"));
  OP_REQUIRES_OK(&ctx, Encode(&ctx, [&](Encoder& encoder) {
    return LaunchElementwise(encoder, {"add", out.dtype(), "11"}, out.num_elements(),
                             {{"a", a}, {"b", b}, {"out", out}});
  }));
}

void ZeroElements(TF_OpKernelContext* raw, TF_Tensor* input, TF_Tensor* raw_out) {
  KernelContext ctx(raw);
  const Tensor in = ToTensor(input), out = ToTensor(raw_out);
  OP_REQUIRES_OK(&ctx, ZeroOutput(&ctx, "ZerosLike", out));
}

class AddNVariantOp {
 public:
  static constexpr char kOp[] = "AddN";
  explicit AddNVariantOp(KernelConstruction*) {}
  void Compute(KernelContext* ctx) {
    CStatus status;
    TF_AddNVariant(ctx->raw(), AddElements, status);
    OP_REQUIRES_OK(ctx, status.Get());
  }
};

class ZerosLikeVariantOp {
 public:
  static constexpr char kOp[] = "ZerosLike";
  explicit ZerosLikeVariantOp(KernelConstruction*) {}
  void Compute(KernelContext* ctx) {
    CStatus status;
    TF_ZerosLikeVariant(ctx->raw(), ZeroElements, status);
    OP_REQUIRES_OK(ctx, status.Get());
  }
};

REGISTER_METAL_KERNEL(AddNVariantOp, .Types("T", {TF_VARIANT}));
REGISTER_METAL_KERNEL(ZerosLikeVariantOp, .Types("T", {TF_VARIANT}));

}  // namespace
}  // namespace metal_ops
