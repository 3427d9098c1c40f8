// AddN and ZerosLike of variants: see variant.h.

#include "kernels/tensorflow/variant.h"

#include "kernels/tensorflow/cc_tensor.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/kernels/data/optional_ops_util.h"
#include "tensorflow/core/kernels/tensor_list.h"
#include "tensorflow/core/kernels/tensor_list_util.h"
#include "tensorflow/core/kernels/variant_ops_util.h"

namespace metal_ops {
namespace {

using tensorflow::TensorList;
using tensorflow::Variant;
using tensorflow::data::OptionalVariant;
using CcTensor = tensorflow::Tensor;
using CcKernelContext = tensorflow::OpKernelContext;

absl::Status Unknown(const char* op, const Variant& variant) {
  return ToCc(Internal(op, ": variants of ", variant.TypeName(),
                       " are neither TensorLists nor optionals; place the op on the CPU"));
}

absl::Status Zeros(KernelContext* ctx, const std::function<Status(const Tensor&)>& zero,
                   const Variant& in, Variant* out) {
  const auto element = [&](CcKernelContext* cc, const CcTensor& x, CcTensor* y) -> absl::Status {
    if (x.dtype() == tensorflow::DT_INVALID) {
      *y = CcTensor(tensorflow::DT_INVALID);
      return absl::OkStatus();
    }
    tensorflow::AllocatorAttributes where;
    where.set_on_host(x.dtype() == tensorflow::DT_VARIANT);
    TF_RETURN_IF_ERROR(cc->allocate_temp(x.dtype(), x.shape(), y, where));
    if (x.dtype() == tensorflow::DT_VARIANT) {  // a list of lists
      return Zeros(ctx, zero, x.scalar<Variant>()(), &y->scalar<Variant>()());
    }
    Tensor zeros;
    if (const Status status = FromCc(*y, &zeros); !status.ok()) return ToCc(status);
    return ToCc(zero(zeros));
  };
  tensorflow::OpKernelContext* const cc = CcContext(ctx);
  if (const TensorList* list = in.get<TensorList>()) {
    *out = TensorList();
    return TensorListZerosLike(cc, *list, out->get<TensorList>(), element);
  }
  if (const OptionalVariant* optional = in.get<OptionalVariant>()) {
    *out = OptionalVariant();
    return OptionalZerosLike(cc, *optional, out->get<OptionalVariant>(), element);
  }
  return Unknown("ZerosLike", in);
}

}  // namespace

Status AddVariants(
    KernelContext* ctx,
    const std::function<Status(const Tensor& a, const Tensor& b, const Tensor& out)>& add) {
  const auto element = [&](CcKernelContext* cc, const CcTensor& a, const CcTensor& b,
                           CcTensor* out) -> absl::Status {
    // For a list whose element was never set.
    if (a.dtype() == tensorflow::DT_INVALID || b.dtype() == tensorflow::DT_INVALID) {
      *out = a.dtype() == tensorflow::DT_INVALID ? b : a;
      return absl::OkStatus();
    }
    TF_RETURN_IF_ERROR(cc->allocate_temp(a.dtype(), a.shape(), out));
    Tensor x, y, sum;
    Status status = FromCc(a, &x);
    if (status.ok()) status = FromCc(b, &y);
    if (status.ok()) status = FromCc(*out, &sum);
    if (status.ok()) status = add(x, y, sum);
    return ToCc(status);
  };
  tensorflow::OpKernelContext* const cc = CcContext(ctx);
  AddNVariant(cc, [&](CcKernelContext*, const Variant& a, const Variant& b, Variant* out) {
    const auto *list = a.get<TensorList>(), *other_list = b.get<TensorList>();
    if (list != nullptr && other_list != nullptr) {
      *out = TensorList();
      return TensorListBinaryAdd(cc, *list, *other_list, out->get<TensorList>(), element);
    }
    const auto *optional = a.get<OptionalVariant>(), *other = b.get<OptionalVariant>();
    if (optional != nullptr && other != nullptr) {
      *out = OptionalVariant();
      return OptionalBinaryAdd(cc, *optional, *other, out->get<OptionalVariant>(), element);
    }
    return Unknown("AddN", list == nullptr && optional == nullptr ? a : b);
  });
  return FromCc(cc->status());
}

Status ZerosLikeVariant(KernelContext* ctx, const std::function<Status(const Tensor& out)>& zero) {
  tensorflow::OpKernelContext* const cc = CcContext(ctx);
  const CcTensor& in = cc->input(0);
  if (in.dims() != 0) {
    return InvalidArgument("ZerosLike: expected a scalar of dtype variant, got shape ",
                           in.shape().DebugString());
  }
  // C++ objects lie on the host.
  tensorflow::AllocatorAttributes on_host;
  on_host.set_on_host(true);
  CcTensor out;
  RETURN_IF_ERROR(FromCc(cc->allocate_temp(tensorflow::DT_VARIANT, {}, &out, on_host)));
  RETURN_IF_ERROR(FromCc(Zeros(ctx, zero, in.scalar<Variant>()(), &out.scalar<Variant>()())));
  cc->set_output(0, out);
  return Status();
}

}  // namespace metal_ops
