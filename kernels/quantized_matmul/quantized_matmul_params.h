// Quantized weights: how they lie in memory, for host code and shaders alike.
//
// Weights [outputs, inputs] are rows of codes of `bits` bits, the first of a byte in its low bits. A
// block of neighbouring codes of a row shares a scale and a minimum: weight = scale * code + minimum.

#ifndef METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_PARAMS_H_
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_PARAMS_H_

#include "kernels/msl/both.h"

// Blocks are made of so many codes, so that no vector has codes of two.
#define QUANTIZED_UNIT 32
// Rows of x that a thread multiplies each output's codes by, where it works alone.
#define QUANTIZED_FEW_ROWS 4
// Where threads share the codes: rows at once, at most, simdgroups of a threadgroup, and outputs that a
// simdgroup has.
#define QUANTIZED_GROUP_ROWS 8
#define QUANTIZED_SIMDGROUPS 8
#define QUANTIZED_LINES 4

// A row of x whose greatest number is less counts as zeros where it is rounded to 8 bits.
#define QUANTIZED_LEAST 1e-36f

struct QuantizedParams {
  int64_t rows, inputs, outputs;
  int64_t bytes;   // of a row of codes
  int64_t block;   // codes of a scale
  int64_t groups;  // scales of a row
  int64_t
      row_groups;  // from one row's scales to the next one's: groups, or 0 where they share theirs
  uint32_t use_minima;
  float middle;  // the code that stands for 0 where there are no minima
};
static_assert(sizeof(QuantizedParams) == 64, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_PARAMS_H_
