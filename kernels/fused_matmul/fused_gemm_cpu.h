// A fused product or convolution on the CPU: shared by MetalFusedMatMul and MetalFusedConv2D.

#ifndef METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_CPU_H_
#define METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_CPU_H_

#include "kernels/gemm/gemm_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// out = epilogue(a b), with a, b and args the inputs; `plan` is asked if out has elements.
void RunFusedGemm(CpuCall& call, GemmParams (*plan)(OpCall&));

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_CPU_H_
