// AddN and ZerosLike of variants: gradients of loops use them on TensorLists whose elements are on
// the device.

#include "device/kernels/layout.h"
#include "kernels/runtime/elementwise.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variant.h"

namespace metal_ops {
namespace {

class AddNVariantOp {
 public:
  static constexpr char kOp[] = "AddN";
  explicit AddNVariantOp(KernelConstruction*) {}
  void Compute(KernelContext* ctx) {
    OP_REQUIRES_OK(ctx, AddVariants(ctx, [&](const Tensor& a, const Tensor& b, const Tensor& out) {
                     return AddElements(ctx, a, b, out);
                   }));
  }

 private:
  static Status AddElements(KernelContext* ctx, const Tensor& a, const Tensor& b,
                            const Tensor& out) {
    if (ShaderType(out.dtype()) == nullptr || out.dtype() == TF_BOOL) {
      return Unimplemented("AddN: elements of dtype ", ToString(out.dtype()),
                           " cannot be added on the METAL device; place the op on the CPU");
    }
    if (a.shape() != b.shape()) {
      return InvalidArgument("AddN: list elements have shapes ", ToString(a.shape()), " and ",
                             ToString(b.shape()), ", expected equal ones");
    }
    return Encode(ctx, [&](Encoder& encoder) {
      return LaunchElementwise(encoder, {"add", out.dtype(), "11"}, out.num_elements(),
                               {{"a", a}, {"b", b}, {"out", out}});
    });
  }
};

class ZerosLikeVariantOp {
 public:
  static constexpr char kOp[] = "ZerosLike";
  explicit ZerosLikeVariantOp(KernelConstruction*) {}
  void Compute(KernelContext* ctx) {
    OP_REQUIRES_OK(
        ctx, ZerosLikeVariant(ctx, [&](const Tensor& out) { return ZeroOutput(ctx, kOp, out); }));
  }
};

REGISTER_METAL_KERNEL(AddNVariantOp, .Types("T", {TF_VARIANT}));
REGISTER_METAL_KERNEL(ZerosLikeVariantOp, .Types("T", {TF_VARIANT}));

}  // namespace
}  // namespace metal_ops
