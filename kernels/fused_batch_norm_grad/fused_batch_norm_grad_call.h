// Arguments of a call of MetalFusedBatchNormGrad, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_CALL_H_
#define METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_CALL_H_

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_params.h"
#include "kernels/runtime/op.h"
#include "kernels/runtime/row_parts.h"

namespace metal_ops {

inline FusedBatchNormGradParams ToFusedBatchNormGradParams(const OpCall& call) {
  FusedBatchNormGradParams p = {};
  const ArgShape& shape = call.in_shapes[0];
  if (call.Text("data_format") == "NCHW") {
    SetPlanes(&p, shape);
  } else {
    p.columns = shape.dims.back();
    p.rows = RowsOf(shape);
    SetParts(&p, NORM_GRAD_PART_ROWS, NORM_GRAD_MOST_PARTS);
  }
  p.epsilon = call.Float("epsilon");
  p.training = call.Bool("is_training") ? 1 : 0;
  p.relu6 = call.Text("activation") == "Relu6" ? 1 : 0;
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_CALL_H_
