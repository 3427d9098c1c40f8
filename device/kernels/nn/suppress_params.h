// Arguments of the shader of suppress.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_SUPPRESS_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_SUPPRESS_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SUPPRESS_THREADS 64

struct SuppressParams {
  uint32_t boxes, most;
  float threshold, least_score;
};

#endif  // METAL_OPS_DEVICE_KERNELS_NN_SUPPRESS_PARAMS_H_
