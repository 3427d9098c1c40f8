// MetalFusedMatMul on the Metal device.

#include "kernels/fused_matmul/fused_gemm_metal.h"
#include "kernels/fused_matmul/fused_matmul_call.h"

namespace metal_ops {
namespace {

Status FusedMatMul(MetalCall& call) { return RunFusedGemm(call, PlanFusedMatMul); }
METAL_KERNEL("MetalFusedMatMul", FusedMatMul);

}  // namespace
}  // namespace metal_ops
