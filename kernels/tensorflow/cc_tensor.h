// TensorFlow's C++ objects behind the handles of its kernel C API, for tasks that API has no functions for:
// see variable.h.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_CC_TENSOR_H_
#define METAL_OPS_KERNELS_TENSORFLOW_CC_TENSOR_H_

#include <string>

#include "kernels/tensorflow/op_kernel.h"
#include "tensorflow/c/tf_tensor_internal.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {

inline tensorflow::OpKernelContext* CcContext(KernelContext* ctx) {
  return reinterpret_cast<tensorflow::OpKernelContext*>(ctx->raw());
}

inline Status FromCc(const absl::Status& status) {
  return status.ok() ? Status()
                     : Status(static_cast<Code>(status.code()), std::string(status.message()));
}

inline absl::Status ToCc(const Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

// Shares the memory.
inline Status FromCc(const tensorflow::Tensor& from, Tensor* tensor) {
  absl::Status status;
  TF_Tensor* const raw = tensorflow::TF_TensorFromTensor(from, &status);
  if (raw != nullptr) *tensor = ToTensor(raw);
  return FromCc(status);
}

// Encodes a copy between two of one shape and dtype.
inline Status CopyCc(KernelContext* ctx, const tensorflow::Tensor& from,
                     const tensorflow::Tensor& to) {
  Tensor source, dest;
  RETURN_IF_ERROR(FromCc(from, &source));
  RETURN_IF_ERROR(FromCc(to, &dest));
  return Encode(ctx, [&](Encoder& encoder) { return encoder.Copy(source, dest); });
}

// Memory of its own for one that others hold, too.
inline Status OwnCopyCc(KernelContext* ctx, const tensorflow::Tensor& from,
                        tensorflow::Tensor* own) {
  RETURN_IF_ERROR(FromCc(CcContext(ctx)->allocate_temp(from.dtype(), from.shape(), own)));
  return CopyCc(ctx, from, *own);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_CC_TENSOR_H_
