// Pooling of windows whose sizes differ: arguments of the shaders of fractional.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_FRACTIONAL_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_FRACTIONAL_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct FractionalParams {
  uint32_t in_h, in_w, out_h, out_w, channels;
};
static_assert(sizeof(FractionalParams) == 20, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_NN_FRACTIONAL_PARAMS_H_
