// MetalFusedConv2D on the CPU.

#include "kernels/fused_conv2d/fused_conv2d_call.h"
#include "kernels/fused_matmul/fused_gemm_cpu.h"

namespace metal_ops {
namespace {

void FusedConv2D(CpuCall& call) { RunFusedGemm(call, PlanFusedConv2D); }
CPU_KERNEL("MetalFusedConv2D", FusedConv2D);

}  // namespace
}  // namespace metal_ops
