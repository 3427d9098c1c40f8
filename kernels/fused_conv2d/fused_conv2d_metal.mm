// MetalFusedConv2D on the Metal device.

#include "kernels/fused_conv2d/fused_conv2d_call.h"
#include "kernels/fused_matmul/fused_gemm_metal.h"

namespace metal_ops {
namespace {

Status FusedConv2D(MetalCall& call) { return RunFusedGemm(call, PlanFusedConv2D); }
METAL_KERNEL("MetalFusedConv2D", FusedConv2D);

}  // namespace
}  // namespace metal_ops
