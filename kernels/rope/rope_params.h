// Rotary position embedding: sizes, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_ROPE_ROPE_PARAMS_H_
#define METAL_OPS_KERNELS_ROPE_ROPE_PARAMS_H_

#include "kernels/msl/both.h"

struct RopeParams {
  int64_t batch, heads, length, size;
  int64_t pairs;         // that are turned; elements behind them stay
  int64_t batch_stride;  // of positions: 0 where all sequences have the same
  float sign;            // of the angle: -1 turns back
  uint32_t interleaved;  // pairs of neighbours, else of halves
};
static_assert(sizeof(RopeParams) == 56, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_ROPE_ROPE_PARAMS_H_
