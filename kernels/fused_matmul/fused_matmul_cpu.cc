// MetalFusedMatMul on the CPU.

#include "kernels/fused_matmul/fused_gemm_cpu.h"
#include "kernels/fused_matmul/fused_matmul_call.h"

namespace metal_ops {
namespace {

void FusedMatMul(CpuCall& call) { RunFusedGemm(call, PlanFusedMatMul); }
CPU_KERNEL("MetalFusedMatMul", FusedMatMul);

}  // namespace
}  // namespace metal_ops
