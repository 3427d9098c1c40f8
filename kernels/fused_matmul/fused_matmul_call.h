// A checked MetalFusedMatMul, without empty tensors, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_MATMUL_CALL_H_
#define METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_MATMUL_CALL_H_

#include "kernels/gemm/gemm_plan.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// Errors are in call.shapes.
inline GemmParams PlanFusedMatMul(OpCall& call) {
  const bool transpose_a = call.Bool("transpose_a");
  const MatMulSizes sizes =
      ToMatMulSizes(call.in_shapes[0], call.in_shapes[1], transpose_a, call.out_shapes[0]);
  return PlanMatMul(&call.shapes, sizes, transpose_a, call.Bool("transpose_b"));
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_MATMUL_CALL_H_
