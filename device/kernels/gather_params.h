// Arguments of the shaders of gather.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_GATHER_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_GATHER_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// params [batch, outer, rows, inner], indices [batch, indices], out [batch, outer, indices, inner].
struct GatherParams {
  uint64_t outer, rows, inner, indices;
  uint64_t total;  // elements of out
};

// Elements of a row that a thread copies; bytes of one where threads run after each other: a row's number is looked up
// for each.
#define GATHER_BLOCK 8
#define GATHER_MANY_BYTES 256
#define WHERE_PIECE 64
#define WHERE_DIMS 8

struct WhereParams {
  uint64_t total;
  uint64_t dims[WHERE_DIMS];
  uint32_t rank, unused;
};

#endif  // METAL_OPS_DEVICE_KERNELS_GATHER_PARAMS_H_
