// Recurrent cells: the interface of host code and shaders.

#ifndef METAL_OPS_KERNELS_RECURRENT_RECURRENT_PARAMS_H_
#define METAL_OPS_KERNELS_RECURRENT_RECURRENT_PARAMS_H_

#include "kernels/msl/both.h"

struct RecurrentParams {
  uint32_t units, outputs;  // of the cell; of the state that it shows, fewer after a projection
  uint32_t width, first;    // of all gates; of those whose product is with the state itself
  uint32_t steps, step;     // of a sequence; this one
  uint32_t use_mask, use_bias, projects;
  float beta;     // forget_gate
  float epsilon;  // of norms
};
static_assert(sizeof(RecurrentParams) == 44, "host and shader must agree");

// A block of a matrix: its row's elements, and where they begin.
struct RecurrentBlock {
  uint32_t columns, row, first;
};
static_assert(sizeof(RecurrentBlock) == 12, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_RECURRENT_RECURRENT_PARAMS_H_
