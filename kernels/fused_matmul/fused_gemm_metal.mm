// A fused product or convolution on the Metal device: shared by MetalFusedMatMul and
// MetalFusedConv2D.

#include "kernels/fused_matmul/fused_gemm_metal.h"

#include "kernels/gemm/fused_call.h"
#include "kernels/gemm/gemm.h"

namespace metal_ops {

Status RunFusedGemm(MetalCall& call, GemmParams (*plan)(OpCall&)) {
  if (call.out(0).num_elements() == 0) return Status();
  const GemmParams params = plan(call);
  RETURN_IF_ERROR(call.Checked());
  GemmEpilogue epilogue = {FusedOpsOf(call), EpilogueOf(call), {}};
  for (size_t i = 2; i < call.inputs.size(); ++i) epilogue.args.push_back(&call.inputs[i]);
  const auto floats = [&](const Shape& shape, Tensor* tensor) {
    return call.AllocateTemp(DType::kFloat, shape, tensor);
  };
  return RunGemm(call.stream(), floats, params, call.in(0), call.in(1), &epilogue, call.out(0));
}

}  // namespace metal_ops
