// ScaleSlope's and ScaleSlopeSum's parameters, read by host code and shader alike.

#ifndef METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_PARAMS_H_
#define METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct ScaleSlopeParams {
  uint64_t n_elements;
  uint64_t per_d_loss;  // elements for each d_loss value
};
static_assert(sizeof(ScaleSlopeParams) == 16, "host and shader must agree");

// Terms that a thread adds up in one pass of a sum; the next pass adds up the threads' sums. A tree
// that only depends on the shape gives the same bits every time.
#define SCALE_SLOPE_TERMS 64

struct ScaleSlopeSumParams {
  uint64_t n_elements;
  uint64_t n_sums;      // a multiple of the channels; each takes every n_sums-th element
  uint64_t per_d_loss;  // in the first pass
};
static_assert(sizeof(ScaleSlopeSumParams) == 24, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_SCALE_SLOPE_SCALE_SLOPE_PARAMS_H_
