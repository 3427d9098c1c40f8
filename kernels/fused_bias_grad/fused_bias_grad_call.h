// What a call of MetalFusedBiasGrad is told, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_CALL_H_
#define METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_CALL_H_

#include <algorithm>
#include <iterator>

#include "kernels/fused_bias_grad/fused_bias_grad_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline FusedBiasGradParams ToFusedBiasGradParams(const OpCall& call) {
  static const char* const kActivations[] = {"Relu",      "Relu6",   "Elu",
                                             "LeakyRelu", "Sigmoid", "Tanh"};
  FusedBiasGradParams p = {};
  const ArgShape& shape = call.in_shapes[0];
  p.columns = shape.dims.back();
  p.rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) p.rows *= shape.dims[i];
  // Follows from the sizes alone, and so do the bits of what is summed.
  const int64_t most = (p.rows + BIAS_GRAD_MOST_PARTS - 1) / BIAS_GRAD_MOST_PARTS;
  p.part_rows = std::max<int64_t>(BIAS_GRAD_PART_ROWS, most);
  p.n_parts = static_cast<uint32_t>((p.rows + p.part_rows - 1) / p.part_rows);
  p.alpha = call.Float("leakyrelu_alpha");
  const auto found =
      std::find(std::begin(kActivations), std::end(kActivations), call.Text("activation"));
  p.activation = static_cast<uint32_t>(found - std::begin(kActivations));
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_CALL_H_
