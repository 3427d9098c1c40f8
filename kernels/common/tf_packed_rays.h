// packed_info of TensorFlow's CPU kernels.

#ifndef METAL_OPS_KERNELS_COMMON_TF_PACKED_RAYS_H_
#define METAL_OPS_KERNELS_COMMON_TF_PACKED_RAYS_H_

#include <string>

#include "kernels/common/packed_rays.h"
#include "kernels/common/tf_arg_shapes.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/errors.h"

namespace metal_ops {

// Shapes have been checked; what packed_info holds is checked here.
inline tensorflow::Status InitRays(const std::string& op, const tensorflow::Tensor& packed_info,
                                   const tensorflow::TensorShape& samples, PackedRays* rays) {
  const PackedInfo info = {packed_info.data(), packed_info.dim_size(0),
                           packed_info.dtype() == tensorflow::DT_INT64};
  const std::string error = rays->Init(op, info, ToArgShape(samples));
  return error.empty() ? tensorflow::OkStatus() : tensorflow::errors::InvalidArgument(error);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_TF_PACKED_RAYS_H_
