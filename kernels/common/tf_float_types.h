// TensorFlow tensors as FloatArray. Reached through data() and never flat<T>(), which expects
// alignment.

#ifndef METAL_OPS_KERNELS_COMMON_TF_FLOAT_TYPES_H_
#define METAL_OPS_KERNELS_COMMON_TF_FLOAT_TYPES_H_

#include "kernels/common/float_types.h"
#include "tensorflow/core/framework/tensor.h"

namespace metal_ops {

inline FloatType ToFloatType(tensorflow::DataType type) {
  if (type == tensorflow::DT_HALF) return FloatType::kHalf;
  return type == tensorflow::DT_BFLOAT16 ? FloatType::kBfloat16 : FloatType::kFloat;
}

inline FloatArray ToFloatArray(const tensorflow::Tensor& tensor) {
  return {tensor.data(), ToFloatType(tensor.dtype())};
}

inline MutableFloatArray ToMutableFloatArray(tensorflow::Tensor* tensor) {
  return {tensor->data(), ToFloatType(tensor->dtype())};
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_TF_FLOAT_TYPES_H_
