// Pooling, depthwise convolution, batch norm: structs read by host code and shaders alike.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_SPATIAL_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_SPATIAL_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Channels that a thread computes where they are neighbours in memory: a sector of a GPU's cache, a vector
// of a CPU's.
#define WINDOW_LANES 8
// As many where threads work alone, which find their window once for all of them.
#define WINDOW_MANY_LANES 32
#define BATCH_NORM_LANES 16

// A window that moves over images. Strides are in elements; the grid is (channels, width, images *
// height) of the output with NHWC and (width, height, images * channels) with NCHW.
struct WindowParams {
  int64_t in_image, in_y, in_x, in_c;
  uint32_t in_h, in_w, out_h, out_w, channels;
  uint32_t window_h, window_w, stride_h, stride_w, dilation_h, dilation_w;
  int32_t pad_top, pad_left;
  uint32_t multiplier;  // of a depthwise convolution: output channels an input channel
  uint32_t nchw;
  uint32_t reserved;
};
static_assert(sizeof(WindowParams) == 96, "host and shader must agree");

// Channel c of image n has `inner` points, image by image; with NHWC there is one image of `rows`
// points whose channels are neighbours.
struct BatchNormParams {
  int64_t image, channel, point;  // strides of x, in elements
  uint32_t images, inner, channels;
  uint32_t chunks, chunk;  // points that one thread adds, image by image
  float epsilon;
  float momentum;  // part of the batch in the running averages
  uint32_t reserved;
};
static_assert(sizeof(BatchNormParams) == 56, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_NN_SPATIAL_PARAMS_H_
