// Arguments of the shaders of scatter.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_SCATTER_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_SCATTER_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SCATTER_DIMS 8
#define SCATTER_BLOCK 64

// indices [updates, depth] name slices of `inner` elements of a tensor [dims..., inner], of which a thread
// has `part` in `range` rows. updates [updates, inner], or one value for all.
struct ScatterParams {
  uint64_t updates, rows, range, inner, part;
  uint64_t dims[SCATTER_DIMS];
  uint32_t depth;
  uint32_t one_value;
};
static_assert(sizeof(ScatterParams) == 112, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_SCATTER_PARAMS_H_
