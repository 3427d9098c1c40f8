// Hamming distances: where rows lie, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_HAMMING_DISTANCE_HAMMING_DISTANCE_PARAMS_H_
#define METAL_OPS_KERNELS_HAMMING_DISTANCE_HAMMING_DISTANCE_PARAMS_H_

#include "kernels/msl/both.h"

// Batch dimensions that are left where neighbours that are broadcast alike are taken as one.
#define HAMMING_MOST_DIMS 8

struct HammingParams {
  // The last one first; of size 1 beyond the `n_dims`, two at least. Strides count rows.
  int64_t sizes[HAMMING_MOST_DIMS], a_strides[HAMMING_MOST_DIMS], b_strides[HAMMING_MOST_DIMS];
  int64_t bytes;  // of a row
  uint32_t n_dims;
  uint32_t elements;  // bytes that differ, else bits
};
static_assert(sizeof(HammingParams) == 208, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_HAMMING_DISTANCE_HAMMING_DISTANCE_PARAMS_H_
