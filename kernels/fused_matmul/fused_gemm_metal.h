// A fused product or convolution on the Metal device: shared by MetalFusedMatMul and
// MetalFusedConv2D.

#ifndef METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_METAL_H_
#define METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_METAL_H_

#include "kernels/gemm/gemm_params.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {

// out = epilogue(a b), with a, b and args the inputs; `plan` is asked if out has elements.
Status RunFusedGemm(MetalCall& call, GemmParams (*plan)(OpCall&));

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_METAL_H_
