// Arguments of a call of MetalRopeTables, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_ROPE_TABLES_ROPE_TABLES_CALL_H_
#define METAL_OPS_KERNELS_ROPE_TABLES_ROPE_TABLES_CALL_H_

#include "kernels/rope_tables/rope_tables_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline RopeTablesParams ToRopeTablesParams(const OpCall& call) {
  RopeTablesParams p = {};
  // Four dimensions; leading ones are 1 where a shape has fewer.
  const auto size = [](const ArgShape& shape, int dim) {
    const int at = dim - 4 + shape.rank();
    return at < 0 ? int64_t{1} : shape.dims[at];
  };
  const ArgShape& y = call.out_shapes[0];
  p.outer = size(y, 0);
  p.middle = size(y, 1);
  p.inner = size(y, 2);
  p.pairs = size(y, 3) / 2;
  p.backward = call.Bool("backward") ? 1 : 0;
  int64_t* const strides[] = {p.x, p.cosines, p.sines};
  for (int i = 0; i < 3; ++i) {
    int64_t row = 2 * p.pairs;
    for (int dim = 2; dim >= 0; --dim) {
      const int64_t n = size(call.in_shapes[i], dim);
      strides[i][dim] = n == 1 ? 0 : row;
      row *= n;
    }
  }
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROPE_TABLES_ROPE_TABLES_CALL_H_
