// Colours of images: hue, saturation, contrast. A pixel is three neighbours, and a thread's.

#include <metal_stdlib>

#include "device/kernels/nn/image_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// Hue in turns, the largest of the three, and the range between it and the least.
struct Hue {
  float hue, largest, range;
};
inline Hue find_hue(float r, float g, float b) {
  Hue h;
  h.largest = max(r, max(g, b));
  h.range = h.largest - min(r, min(g, b));
  const float unit = 1.0f / (6.0f * h.range);
  float hue = r == h.largest   ? unit * (g - b)
              : g == h.largest ? unit * (b - r) + 2.0f / 6.0f
                               : unit * (r - g) + 4.0f / 6.0f;
  hue = h.range > 0.0f ? hue : 0.0f;
  h.hue = hue < 0.0f ? hue + 1.0f : hue;
  return h;
}
// How much of the range each has.
inline float3 of_hue(float hue) {
  const float turn = hue * 6.0f;
  return clamp(float3(abs(turn - 3.0f) - 1.0f, 2.0f - abs(turn - 2.0f), 2.0f - abs(turn - 4.0f)),
               0.0f, 1.0f);
}

template <typename T>
inline void store_pixel(device T* out, ulong at, float r, float g, float b) {
  out[at] = T(r);
  out[at + 1] = T(g);
  out[at + 2] = T(b);
}

template <typename T>
kernel void rgb_to_hsv(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  const ulong at = ulong(i) * 3;
  const Hue h = find_hue(float(in[at]), float(in[at + 1]), float(in[at + 2]));
  store_pixel(out, at, h.hue, h.largest > 0.0f ? h.range / h.largest : 0.0f, h.largest);
}

template <typename T>
kernel void hsv_to_rgb(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  const ulong at = ulong(i) * 3;
  const float s = float(in[at + 1]), v = float(in[at + 2]);
  const float3 parts = of_hue(float(in[at]));
  store_pixel(out, at, (1.0f - s + s * parts.x) * v, (1.0f - s + s * parts.y) * v,
              (1.0f - s + s * parts.z) * v);
}

template <typename T>
kernel void adjust_hue(device const T* in [[buffer(0)]], device const float* delta [[buffer(1)]],
                       device T* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  const ulong at = ulong(i) * 3;
  const Hue h = find_hue(float(in[at]), float(in[at + 1]), float(in[at + 2]));
  const float turned = h.hue + delta[0];
  const float3 parts = of_hue(turned - floor(turned));
  const float least = h.largest - h.range;
  store_pixel(out, at, least + h.range * parts.x, least + h.range * parts.y,
              least + h.range * parts.z);
}

template <typename T>
kernel void adjust_saturation(device const T* in [[buffer(0)]],
                              device const float* scale [[buffer(1)]], device T* out [[buffer(2)]],
                              uint i [[thread_position_in_grid]]) {
  const ulong at = ulong(i) * 3;
  const Hue h = find_hue(float(in[at]), float(in[at + 1]), float(in[at + 2]));
  const float v = h.largest;
  const float s = clamp((v > 0.0f ? h.range / v : 0.0f) * scale[0], 0.0f, 1.0f);
  const float3 parts = of_hue(h.hue);
  store_pixel(out, at, (1.0f - s + s * parts.x) * v, (1.0f - s + s * parts.y) * v,
              (1.0f - s + s * parts.z) * v);
}

// Sums down the columns of images [images, height, columns], a column being a channel of a pixel: a thread has
// CONTRAST_COLUMNS neighbours. Grid: blocks of columns, images.
template <typename T>
kernel void contrast_columns(device const T* in [[buffer(0)]], device float* sums [[buffer(1)]],
                             constant uint& height [[buffer(2)]],
                             constant uint& columns [[buffer(3)]],
                             uint2 position [[thread_position_in_grid]]) {
  const uint first = position.x * CONTRAST_COLUMNS;
  device const T* const from = in + ulong(position.y) * height * columns + first;
  device float* const to = sums + ulong(position.y) * columns + first;
  if (first + CONTRAST_COLUMNS <= columns) {
    float sum[CONTRAST_COLUMNS];
    for (uint k = 0; k < CONTRAST_COLUMNS; ++k) sum[k] = 0.0f;
    for (uint y = 0; y < height; ++y) {
      device const T* const row = from + ulong(y) * columns;
      for (uint k = 0; k < CONTRAST_COLUMNS; ++k) sum[k] += float(row[k]);
    }
    for (uint k = 0; k < CONTRAST_COLUMNS; ++k) to[k] = sum[k];
  } else {
    for (uint k = 0; first + k < columns; ++k) {
      float sum = 0.0f;
      for (uint y = 0; y < height; ++y) sum += float(from[ulong(y) * columns + k]);
      to[k] = sum;
    }
  }
}

// A row of pixels that are the mean. Grid: channels, images.
kernel void contrast_means(device const float* sums [[buffer(0)]],
                           device float* means [[buffer(1)]], constant uint& height [[buffer(2)]],
                           constant uint& columns [[buffer(3)]],
                           uint2 position [[thread_position_in_grid]],
                           uint2 grid [[threads_per_grid]]) {
  device const float* const row = sums + ulong(position.y) * columns;
  float sum = 0.0f;
  for (uint x = position.x; x < columns; x += grid.x) sum += row[x];
  const float mean = sum / (float(height) * float(columns / grid.x));
  device float* const to = means + ulong(position.y) * columns;
  for (uint x = position.x; x < columns; x += grid.x) to[x] = mean;
}

// Grid: width * channels, height, images.
template <typename T>
kernel void adjust_contrast(device const T* in [[buffer(0)]],
                            device const float* means [[buffer(1)]],
                            device const float* factor [[buffer(2)]], device T* out [[buffer(3)]],
                            uint3 position [[thread_position_in_grid]],
                            uint3 grid [[threads_per_grid]]) {
  const ulong at = (ulong(position.z) * grid.y + position.y) * grid.x + position.x;
  const float mean = means[ulong(position.z) * grid.x + position.x];
  out[at] = T((float(in[at]) - mean) * factor[0] + mean);
}

#define COLOR(type)                                                       \
  INSTANTIATE_KERNEL("rgb_to_hsv_" #type, rgb_to_hsv, type)               \
  INSTANTIATE_KERNEL("hsv_to_rgb_" #type, hsv_to_rgb, type)               \
  INSTANTIATE_KERNEL("adjust_hue_" #type, adjust_hue, type)               \
  INSTANTIATE_KERNEL("adjust_saturation_" #type, adjust_saturation, type) \
  INSTANTIATE_KERNEL("contrast_columns_" #type, contrast_columns, type)   \
  INSTANTIATE_KERNEL("adjust_contrast_" #type, adjust_contrast, type)
COLOR(float)
COLOR(half)
IF_BFLOAT(COLOR(bfloat))
