// Parts of rows, of each of which a kernel has sums before it adds those up.

#ifndef METAL_OPS_KERNELS_RUNTIME_ROW_PARTS_H_
#define METAL_OPS_KERNELS_RUNTIME_ROW_PARTS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/runtime/arg_shapes.h"

namespace metal_ops {

// How many rows of its last dimension a shape is made of.
inline int64_t RowsOf(const ArgShape& shape) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape.dims[i];
  return rows;
}

// Sets a struct's `part_rows` and `n_parts`, of `least` rows each and no more than `most` parts. They
// follow from the number of rows alone, and so do the bits of the sums.
template <typename Params>
void SetParts(Params* p, int64_t least, int64_t most) {
  p->part_rows = std::max(least, (p->rows + most - 1) / most);
  p->n_parts = static_cast<uint32_t>((p->rows + p->part_rows - 1) / p->part_rows);
}

// The same of [pictures, columns, ...]: a part is a picture, of so many elements in each column.
template <typename Params>
void SetPlanes(Params* p, const ArgShape& shape) {
  p->columns = shape.dims[1];
  p->part_rows = 1;
  for (int i = 2; i < shape.rank(); ++i) p->part_rows *= shape.dims[i];
  p->n_parts = static_cast<uint32_t>(shape.dims[0]);
  p->rows = shape.dims[0] * p->part_rows;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_ROW_PARTS_H_
