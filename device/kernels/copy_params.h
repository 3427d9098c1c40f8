// How copy.metal is launched.

#ifndef METAL_OPS_DEVICE_KERNELS_COPY_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_COPY_PARAMS_H_

// The side of a tile that a thread turns, of elements up to 8 bytes and of larger ones.
#define COPY_TILE 8
#define COPY_TILE_WIDE 4

#endif  // METAL_OPS_DEVICE_KERNELS_COPY_PARAMS_H_
