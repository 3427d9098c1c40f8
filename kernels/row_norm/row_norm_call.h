// Arguments of a call of RowNorm or its gradient, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_CALL_H_
#define METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_CALL_H_

#include "kernels/row_norm/row_norm_params.h"
#include "kernels/runtime/op.h"
#include "kernels/runtime/row_parts.h"

namespace metal_ops {

inline RowNormParams ToRowNormParams(const OpCall& call) {
  RowNormParams p = {};
  p.rows = call.Size("rows");
  p.columns = call.Size("columns");
  p.epsilon = call.Float("epsilon");
  p.center = call.Bool("center") ? 1 : 0;
  SetParts(&p, ROW_NORM_PART_ROWS, ROW_NORM_MOST_PARTS);
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_CALL_H_
