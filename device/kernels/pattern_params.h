// Arguments of the shaders of pattern.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_PATTERN_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_PATTERN_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Lines [outer, count, inner], along which sums go.
struct ScanParams {
  uint64_t count, inner;
  uint32_t exclusive, reverse;
};

// In a matrix `lower` diagonals below the main one are kept and `upper` above; all where that is
// negative.
struct BandParams {
  int64_t lower, upper;
};

#endif  // METAL_OPS_DEVICE_KERNELS_PATTERN_PARAMS_H_
