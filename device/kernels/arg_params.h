// ArgMax and ArgMin: what host code and shaders have in common.

#ifndef METAL_OPS_DEVICE_KERNELS_ARG_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_ARG_PARAMS_H_

// Elements that a thread compares side by side.
#define ARG_LANES 32

#endif  // METAL_OPS_DEVICE_KERNELS_ARG_PARAMS_H_
