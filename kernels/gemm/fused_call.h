// Shared by MetalFusedConv2D and MetalFusedMatMul: inputs are two factors and args.

#ifndef METAL_OPS_KERNELS_GEMM_FUSED_CALL_H_
#define METAL_OPS_KERNELS_GEMM_FUSED_CALL_H_

#include <vector>

#include "kernels/gemm/fused_ops.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// The fused ops of a call. Errors are in call.shapes.
inline FusedOps FusedOpsOf(OpCall& call) {
  FusedOps fused;
  const int n_args = static_cast<int>(call.Types("TArgs").size());
  ParseFusedOps(&call.shapes, call.Texts("fused_ops"), n_args, &fused);
  return fused;
}

inline EpilogueParams EpilogueOf(const OpCall& call) {
  EpilogueParams params = {};
  params.epsilon = call.Float("epsilon");
  params.leakyrelu_alpha = call.Float("leakyrelu_alpha");
  return params;
}

inline void CheckFusedAttrs(OpCall& call) {
  const FusedOps fused = FusedOpsOf(call);
  if (!call.shapes.ok()) return;
  std::vector<FloatType> types;
  for (const DType type : call.Types("TArgs")) types.push_back(ToFloatType(type));
  CheckFusedTypes(&call.shapes, fused, ToFloatType(call.Type("T")), types);
}

// `output` is the product's shape, with channels in dimension `channel_dim`; the call's output is
// that, and the dimensions that a residual knows.
inline void CheckFusedCall(OpCall& call, ArgShape output, int channel_dim) {
  if (!call.shapes.ok()) return;
  const FusedOps fused = FusedOpsOf(call);
  const std::vector<ArgShape> args(call.in_shapes.begin() + 2, call.in_shapes.end());
  CheckFusedShapes(&call.shapes, fused, output, channel_dim, args);
  if (fused.add && call.shapes.ok() && args.back().known_rank) {
    if (!output.known_rank) output = args.back();
    for (int i = 0; i < output.rank(); ++i) {
      if (output.dims[i] < 0) output.dims[i] = args.back().dims[i];
    }
  }
  call.out_shapes[0] = output;
}

inline void FusedTypes(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16}").Attr("TArgs: list({float, half, bfloat16}) >= 0");
}

inline void FusedAttrs(OpBuilder& op) {
  op.Attr("fused_ops: list(string)",
          "BiasAdd, BatchNorm, Add, Relu, Relu6, Elu, LeakyRelu, Sigmoid, Tanh, Swish, GeluExact, "
          "GeluApproximate, Mish.")
      .Attr("epsilon: float = 0.0001", "Added to the variance by BatchNorm.")
      .Attr("leakyrelu_alpha: float = 0.2", "Slope of LeakyRelu below zero.");
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_FUSED_CALL_H_
