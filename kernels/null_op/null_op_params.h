// NullOp's parameters, read by host code and shader alike. Part 2 of 6.
//
// Fixed-width types in an order without padding, and a static_assert on the size: the two compilers
// must lay the struct out in the same way, and nothing else would notice if they did not.

#ifndef METAL_OPS_KERNELS_NULL_OP_NULL_OP_PARAMS_H_
#define METAL_OPS_KERNELS_NULL_OP_NULL_OP_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct NullOpParams {
  uint64_t n_elements;
  float scale;
  uint32_t reserved;  // a multiple of 8 bytes, as n_elements is aligned to 8
};
static_assert(sizeof(NullOpParams) == 16, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_NULL_OP_NULL_OP_PARAMS_H_
