// What a call of MetalFusedBatchNormGrad is told, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_CALL_H_
#define METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_CALL_H_

#include <algorithm>

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline FusedBatchNormGradParams ToFusedBatchNormGradParams(const OpCall& call) {
  FusedBatchNormGradParams p = {};
  const ArgShape& shape = call.in_shapes[0];
  p.columns = shape.dims.back();
  p.rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) p.rows *= shape.dims[i];
  // Follows from the sizes alone, and so do the bits of what is summed.
  const int64_t most = (p.rows + NORM_GRAD_MOST_PARTS - 1) / NORM_GRAD_MOST_PARTS;
  p.part_rows = std::max<int64_t>(NORM_GRAD_PART_ROWS, most);
  p.n_parts = static_cast<uint32_t>((p.rows + p.part_rows - 1) / p.part_rows);
  p.epsilon = call.Float("epsilon");
  p.training = call.Bool("is_training") ? 1 : 0;
  p.relu6 = call.Text("activation") == "Relu6" ? 1 : 0;
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_CALL_H_
