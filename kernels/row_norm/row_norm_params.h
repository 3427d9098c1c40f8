// Norms of rows: sizes, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_PARAMS_H_
#define METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_PARAMS_H_

#include "kernels/msl/both.h"

// Rows that one part of the gradients of scale and offset sums at least, and the most parts.
#define ROW_NORM_PART_ROWS 64
#define ROW_NORM_MOST_PARTS 64

struct RowNormParams {
  int64_t rows, columns, part_rows;
  float epsilon;
  uint32_t center, use_offset, n_parts;
};
static_assert(sizeof(RowNormParams) == 40, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_ROW_NORM_ROW_NORM_PARAMS_H_
