// Rows that are written into a cache: sizes, and where a row goes, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_CACHE_ROWS_CACHE_ROWS_PARAMS_H_
#define METAL_OPS_KERNELS_CACHE_ROWS_CACHE_ROWS_PARAMS_H_

#include "kernels/msl/both.h"

struct CacheRowsParams {
  int64_t capacity, rows, size;
  uint32_t heads, ring;
};
static_assert(sizeof(CacheRowsParams) == 32, "host and shader must agree");

// Where row i of those of a sequence that has `start` lies, or -1: it is not one of them, or a later
// one takes its place.
inline int64_t cache_slot(METAL_OPS_CONSTANT const CacheRowsParams& p, int64_t start, int64_t count,
                          int64_t i) {
  if (i >= count || i < count - p.capacity) return -1;
  return p.ring != 0 ? (start + i) % p.capacity : start + i;
}

#endif  // METAL_OPS_KERNELS_CACHE_ROWS_CACHE_ROWS_PARAMS_H_
