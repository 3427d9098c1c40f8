// Fourier transforms: structs read by host code and shaders alike.

#ifndef METAL_OPS_DEVICE_KERNELS_FFT_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_FFT_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// A pass over [outer, length, inner]: groups of `radix` points that are `points` elements apart. The
// factors of a group are every `roots_step`-th root of one, those within it every `roots_part`-th.
struct FftStage {
  uint32_t points;    // elements / radix, of one of `outer`
  uint32_t together;  // elements whose groups have the same factors
  uint32_t roots_step, roots_part;
  float scale;
};
static_assert(sizeof(FftStage) == 20, "host and shader must agree");

// [outer, length, inner] as the product of two series of a length that is `padded`, a power of two.
struct ChirpParams {
  uint32_t length, padded, inner;
  float scale;
};
static_assert(sizeof(ChirpParams) == 16, "host and shader must agree");

// What is read of in[..., 0], in[..., 1], in[..., 2], as far as it goes, into out.
struct FftCopy {
  uint32_t in[3], out[3];
};
static_assert(sizeof(FftCopy) == 24, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_FFT_PARAMS_H_
