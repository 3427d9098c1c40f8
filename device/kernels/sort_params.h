// Arguments of the shaders of sort.metal and search.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_SORT_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_SORT_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SORT_DIGITS 256

// Rows of `columns` elements; a thread has `chunk` of them, and a row `chunks` threads.
struct SortParams {
  uint64_t columns;
  uint64_t chunk;
  uint32_t chunks;
  uint32_t shift;       // of the digit that is sorted by
  uint32_t descending;  // the largest first
  uint32_t k;           // how many are kept
};
static_assert(sizeof(SortParams) == 32, "host and shader must agree");

// sorted [batch, sorted], values [batch, values].
struct SearchParams {
  uint64_t values;
  uint32_t sorted;
  uint32_t top;  // the largest power of 2 that `sorted` is not less than
};

// indices [batch, n], bins [batch, size]; a thread has `chunk` indices, and a row `chunks` threads.
struct CountParams {
  uint64_t n, size, chunk;
  uint32_t chunks;
  uint32_t weighted;  // there are weights; else each counts 1
  uint32_t binary;    // 1 for every element that occurs
  uint32_t unused;
};
static_assert(sizeof(CountParams) == 40, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_SORT_PARAMS_H_
