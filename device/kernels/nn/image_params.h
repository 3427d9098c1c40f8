// Images that are resized, cropped, moved and cut into patches: structs read by host code and shaders
// alike. Images are [images, height, width, channels].

#ifndef METAL_OPS_DEVICE_KERNELS_NN_IMAGE_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_IMAGE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// From images of in_h x in_w, in steps of `scale`, to out_h x out_w.
struct ResizeParams {
  uint32_t in_h, in_w, out_h, out_w, channels;
  float scale_h, scale_w;
  uint32_t half_pixel_centers, align_corners;
};
static_assert(sizeof(ResizeParams) == 36, "host and shader must agree");

// Channels that a thread of these computes: a vector of a CPU's.
#define RESIZE_LANES 8
// Where threads run after each other and there are as many.
#define RESIZE_MANY_LANES 32

// Neighbours in rows of images that a thread adds up.
#define CONTRAST_COLUMNS 64

// Along one dimension: [outer, size, inner] resized to `results`.
struct ResizeAxis {
  uint32_t size, results, inner;
  float scale;
  uint32_t half_pixel_centers, align_corners;
};
static_assert(sizeof(ResizeAxis) == 24, "host and shader must agree");

struct CropParams {
  uint32_t images, in_h, in_w, channels;
  uint32_t boxes, crop_h, crop_w;
  uint32_t nearest;
  float outside;  // the value there
};
static_assert(sizeof(CropParams) == 36, "host and shader must agree");

#define FILL_CONSTANT 0
#define FILL_REFLECT 1
#define FILL_WRAP 2
#define FILL_NEAREST 3

struct TransformParams {
  uint32_t in_h, in_w, out_w, channels;
  uint32_t one_transform;  // for all images
  uint32_t bilinear, fill_mode;
  float fill;
};
static_assert(sizeof(TransformParams) == 32, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_NN_IMAGE_PARAMS_H_
