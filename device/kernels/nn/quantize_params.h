// Arguments of the shaders of quantize.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_QUANTIZE_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_QUANTIZE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define QUANTIZE_LANES 16  // elements that a thread compares side by side

// Elements [outer, channels, inner]; each channel has a range.
struct QuantizeParams {
  uint64_t outer, inner;
  uint64_t chunk;  // elements of a channel that a thread looks through
  uint32_t channels, chunks;
  float least, largest;  // of the whole numbers
  uint32_t given;        // the range is
  uint32_t half_up;      // how halves are rounded: up, or to even numbers
};

// How the whole numbers of a channel stand for its floats. Quantization clamps x to [low, high]:
// round((x + before) * scale + after), kept within [least, largest]. Back: (q + before) * scale + after.
struct AffineChannel {
  float low, high, before, scale, after;
};
struct AffineParams {
  uint64_t inner;
  uint32_t channels;
  uint32_t reserved;
  float least, largest;
};
#define AFFINE_AWAY 0  // halves away from 0
#define AFFINE_EVEN 1
#define AFFINE_UP 2     // and then down: of numbers that are not negative
#define AFFINE_FIRST 3  // before `after` is added

#endif  // METAL_OPS_DEVICE_KERNELS_NN_QUANTIZE_PARAMS_H_
