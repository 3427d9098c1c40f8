// What a call of RowNorm or its gradient is told, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_CALL_H_
#define METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_CALL_H_

#include <algorithm>

#include "kernels/row_norm/row_norm_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline RowNormParams ToRowNormParams(const OpCall& call) {
  RowNormParams p = {};
  p.rows = call.Size("rows");
  p.columns = call.Size("columns");
  p.epsilon = call.Float("epsilon");
  p.center = call.Bool("center") ? 1 : 0;
  // Follows from the sizes alone, and so do the bits of what is summed.
  const int64_t most = (p.rows + ROW_NORM_MOST_PARTS - 1) / ROW_NORM_MOST_PARTS;
  p.part_rows = std::max<int64_t>(ROW_NORM_PART_ROWS, most);
  p.n_parts = static_cast<uint32_t>((p.rows + p.part_rows - 1) / p.part_rows);
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_CALL_H_
