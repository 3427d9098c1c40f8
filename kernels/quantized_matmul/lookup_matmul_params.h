// Weights by lookup tables: how they lie in memory, for host code and shaders alike.
//
// Weights [outputs, inputs] are rows of codes of `bits` bits, one behind the other from a byte's low
// bits on, so that eight of them fill `bits` bytes. `group` neighbouring rows share a table of 2^bits
// values: weight = table[code].

#ifndef METAL_OPS_KERNELS_QUANTIZED_MATMUL_LOOKUP_MATMUL_PARAMS_H_
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_LOOKUP_MATMUL_PARAMS_H_

#include "kernels/msl/both.h"

// Rows of x that codes are read once for.
#define LOOKUP_ROWS 4
// Per threadgroup, where its simdgroups have an output each.
#define LOOKUP_SIMDGROUPS 8

struct LookupParams {
  int64_t rows, inputs, outputs;
  int64_t bytes;  // of a row of codes
  int64_t group;  // rows of codes that share a table
};
static_assert(sizeof(LookupParams) == 40, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_LOOKUP_MATMUL_PARAMS_H_
