// Arguments of the shaders of random.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_RANDOM_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_RANDOM_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct RandomParams {
  uint64_t total;
  int64_t low;     // of integers: the smallest,
  uint64_t range;  // and how many there are
  uint32_t counter[4], key[2];
};

#endif  // METAL_OPS_DEVICE_KERNELS_RANDOM_PARAMS_H_
