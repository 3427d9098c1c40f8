// ArgMax and ArgMin: shared by host code and shaders.

#ifndef METAL_OPS_DEVICE_KERNELS_ARG_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_ARG_PARAMS_H_

// Elements that a thread compares side by side.
#define ARG_LANES 32

#endif  // METAL_OPS_DEVICE_KERNELS_ARG_PARAMS_H_
