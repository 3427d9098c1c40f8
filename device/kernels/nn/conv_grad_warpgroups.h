// Gradients of convolutions by warpgroup products: see kernels/gemm/conv_warpgroups.h.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_CONV_GRAD_WARPGROUPS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_CONV_GRAD_WARPGROUPS_H_

#include "kernels/gemm/conv_checks.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// Those of images NHWC, encoded if they go so.
Status RunConvInputGradByWarpgroups(KernelContext* ctx, const ConvSizes& sizes,
                                    const Tensor& filter, const Tensor& d_out, const Tensor& d_in,
                                    bool* ran);
Status RunConvFilterGradByWarpgroups(KernelContext* ctx, const ConvSizes& sizes,
                                     const Tensor& input, const Tensor& d_out,
                                     const Tensor& d_filter, bool* ran);

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_CONV_GRAD_WARPGROUPS_H_
