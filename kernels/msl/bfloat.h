// IF_BFLOAT(...): the code for bfloat, where there is one.
//
// bfloat came with Metal 3.1, which macOS 13 does not load. Compiled for that, with -std=metal3.0,
// shaders are the same ones without those of bfloat.

#ifndef METAL_OPS_KERNELS_MSL_BFLOAT_H_
#define METAL_OPS_KERNELS_MSL_BFLOAT_H_

#if __METAL_VERSION__ >= 310
#define IF_BFLOAT(...) __VA_ARGS__
#else
#define IF_BFLOAT(...)
#endif

#endif  // METAL_OPS_KERNELS_MSL_BFLOAT_H_
