// Windows over volumes, of which images are those of depth 1: a struct read by host code and shaders
// alike.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_VOLUME_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_VOLUME_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Channels that a thread moves at a time where they are a multiple of it: a vector of a CPU's.
#define VOLUME_LANES 8
// Where threads run after each other: the search for a window is shared by as many.
#define VOLUME_MANY_LANES 32

// Strides are in elements; tensors are [volumes, depth, height, width, channels] in one of its
// orders.
struct VolumeParams {
  int64_t in_volume, in_z, in_y, in_x, in_c;
  int64_t out_volume, out_z, out_y, out_x, out_c;
  uint32_t in_d, in_h, in_w, out_d, out_h, out_w, channels;
  uint32_t window_d, window_h, window_w;
  uint32_t stride_d, stride_h, stride_w;
  uint32_t dilation_d, dilation_h, dilation_w;
  int32_t pad_front, pad_top, pad_left;
  uint32_t whole_index;  // of argmax: in all volumes, not in one
};
static_assert(sizeof(VolumeParams) == 160, "host and shader must agree");

#define LRN_LANES 16  // channels that a thread computes side by side
// Those of a processor's, and the radius up to which it keeps the values around them.
#define LRN_LINE 256
#define LRN_REACH 8

// Rows of `depth` channels.
struct LrnParams {
  uint32_t depth, radius;
  float bias, alpha, beta;
};
static_assert(sizeof(LrnParams) == 20, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_NN_VOLUME_PARAMS_H_
