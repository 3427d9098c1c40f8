// How threads share the rows of a loss that is averaged over its last dimension; read by host code
// and shader alike.
//
// A row's elements are dealt out to `n_parts` threads in turns, the threads' sums are added up in
// order: the same bits every time, and neighbouring threads read neighbouring elements.

#ifndef METAL_OPS_KERNELS_LOSSES_ROW_MEANS_PARAMS_H_
#define METAL_OPS_KERNELS_LOSSES_ROW_MEANS_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Elements a thread adds up, at most.
#define ROW_MEANS_PART 256

struct RowMeansParams {
  uint64_t n_rows;
  uint64_t n_columns;  // 1 where nothing is averaged: every element is a row
  uint32_t n_parts;    // of a row; 1: no second pass
  float weight;        // 1 / n_columns
};
static_assert(sizeof(RowMeansParams) == 24, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_LOSSES_ROW_MEANS_PARAMS_H_
