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

// Series that a thread transforms side by side, and how long they are at most: values between its passes
// stay in a cache.
#define FFT_LANES 16
#define FFT_BLOCK_LENGTH 4096
#define FFT_BLOCK_PASSES 8

// For [outer, length, inner] the lanes are inner, or outer where inner is 1, in `across` blocks of
// FFT_LANES.
struct FftBlocks {
  uint64_t blocks, across, lanes;
  uint64_t outer_step, lane_step,
      step;  // elements from one to the next; `step`: points of a series
  uint32_t length, passes;
  uint32_t radices[FFT_BLOCK_PASSES];
  float scale;
  // 1 where there is half a transform of reals, and one number more, instead of that of their pairs; else 0.
  uint32_t half_in, half_out;
  uint32_t reserved;
};
static_assert(sizeof(FftBlocks) == 104, "host and shader must agree");

// [outer, length, inner] as the product of two series of a length that is `padded`, a power of two.
struct ChirpParams {
  uint32_t length, padded, inner;
  float scale;
};
static_assert(sizeof(ChirpParams) == 16, "host and shader must agree");

// The part of in[..., 0], in[..., 1], in[..., 2], as far as it goes, that is read into out.
struct FftCopy {
  uint32_t in[3], out[3];
};
static_assert(sizeof(FftCopy) == 24, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_FFT_PARAMS_H_
