// Gradients of a convolution, for the ops that are one: Conv2D and Conv3D.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_CONV_GRAD_H_
#define METAL_OPS_DEVICE_KERNELS_NN_CONV_GRAD_H_

#include "kernels/gemm/conv_checks.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// For tensors with the sizes of `s`, none of them empty, whatever shapes they have.
Status ConvInputGrad(KernelContext* ctx, const char* op, const ConvSizes& s, bool nchw,
                     const Tensor& filter, const Tensor& d_out, const Tensor& d_in);
Status ConvFilterGrad(KernelContext* ctx, const char* op, const ConvSizes& s, bool nchw,
                      const Tensor& input, const Tensor& d_out, const Tensor& d_filter);

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_CONV_GRAD_H_
