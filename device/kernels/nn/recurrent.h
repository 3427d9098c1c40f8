// Shared by the kernels of LSTMs and GRUs.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_RECURRENT_H_
#define METAL_OPS_DEVICE_KERNELS_NN_RECURRENT_H_

#include "device/kernels/nn/product.h"
#include "device/kernels/nn/recurrent_params.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

inline Status RequireShape(const char* op, const char* name, const Tensor& tensor,
                           const Shape& shape) {
  if (tensor.shape() == shape) return Status();
  return InvalidArgument(op, ": ", name, " must have shape ", ToString(shape), ", got ",
                         ToString(tensor.shape()));
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_RECURRENT_H_
