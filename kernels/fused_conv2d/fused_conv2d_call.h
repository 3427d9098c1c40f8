// A MetalFusedConv2D's attributes and sizes, for its declaration and the kernels of every device.

#ifndef METAL_OPS_KERNELS_FUSED_CONV2D_FUSED_CONV2D_CALL_H_
#define METAL_OPS_KERNELS_FUSED_CONV2D_FUSED_CONV2D_CALL_H_

#include "kernels/gemm/gemm_plan.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline ConvAttrs ConvAttrsOf(const OpCall& call) {
  ConvAttrs attrs;
  attrs.strides = call.Ints("strides");
  attrs.dilations = call.Ints("dilations");
  attrs.explicit_paddings = call.Ints("explicit_paddings");
  attrs.padding = call.Text("padding");
  attrs.nchw = call.Text("data_format") == "NCHW";
  return attrs;
}

// For a checked call without empty tensors. Errors are in call.shapes.
inline GemmParams PlanFusedConv2D(OpCall& call) {
  const ConvAttrs attrs = ConvAttrsOf(call);
  ConvSizes sizes;
  CheckConv(&call.shapes, attrs, call.in_shapes[0], call.in_shapes[1], &sizes);
  return PlanConv(&call.shapes, sizes, attrs.nchw);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_CONV2D_FUSED_CONV2D_CALL_H_
