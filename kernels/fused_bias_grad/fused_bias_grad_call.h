// Arguments of a call of MetalFusedBiasGrad, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_CALL_H_
#define METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_CALL_H_

#include <algorithm>
#include <iterator>

#include "kernels/fused_bias_grad/fused_bias_grad_params.h"
#include "kernels/runtime/op.h"
#include "kernels/runtime/row_parts.h"

namespace metal_ops {

inline FusedBiasGradParams ToFusedBiasGradParams(const OpCall& call) {
  static const char* const kActivations[] = {
      "Relu", "Relu6", "Elu",       "LeakyRelu",       "Sigmoid",
      "Tanh", "Swish", "GeluExact", "GeluApproximate", "Mish"};
  FusedBiasGradParams p = {};
  const ArgShape& shape = call.in_shapes[0];
  if (call.Text("data_format") == "NCHW") {
    SetPlanes(&p, shape);
  } else {
    p.columns = shape.dims.back();
    p.rows = RowsOf(shape);
    SetParts(&p, BIAS_GRAD_PART_ROWS, BIAS_GRAD_MOST_PARTS);
  }
  p.alpha = call.Float("leakyrelu_alpha");
  const auto found =
      std::find(std::begin(kActivations), std::end(kActivations), call.Text("activation"));
  p.activation = static_cast<uint32_t>(found - std::begin(kActivations));
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_CALL_H_
