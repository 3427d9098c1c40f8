// Rope of tables: sizes, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_ROPE_TABLES_ROPE_TABLES_PARAMS_H_
#define METAL_OPS_KERNELS_ROPE_TABLES_ROPE_TABLES_PARAMS_H_

#include "kernels/msl/both.h"

struct RopeTablesParams {
  int64_t outer, middle, inner, pairs;  // of y, [outer, middle, inner, 2 pairs]
  // From one row to the next in these dimensions: 0 where an operand has one for all.
  int64_t x[3], cosines[3], sines[3];
  uint32_t backward, unused;
};
static_assert(sizeof(RopeTablesParams) == 112, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_ROPE_TABLES_ROPE_TABLES_PARAMS_H_
