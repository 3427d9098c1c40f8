// MaxPool, AvgPool, DepthwiseConv2dNative and Softmax.

#include "device/kernels/nn/spatial_params.h"
#include "device/kernels/strided.metal.h"

using namespace metal;

// Which output a thread computes, and where its window begins.
struct Window {
  long image;  // of the input, with the channel
  uint channel;
  int top, left;
  long out;
};
inline Window find_window(constant WindowParams& p, uint3 position) {
  Window w;
  uint image, y, x;
  if (p.nchw) {
    image = position.z / p.channels;
    w.channel = position.z % p.channels;
    y = position.y;
    x = position.x;
    w.out = (long(position.z) * p.out_h + y) * p.out_w + x;
  } else {
    image = position.z / p.out_h;
    w.channel = position.x;
    y = position.z % p.out_h;
    x = position.y;
    w.out = (long(position.z) * p.out_w + x) * p.channels + w.channel;
  }
  w.image = long(image) * p.in_image + long(w.channel / p.multiplier) * p.in_c;
  w.top = int(y * p.stride_h) - p.pad_top;
  w.left = int(x * p.stride_w) - p.pad_left;
  return w;
}

template <typename T>
kernel void max_pool(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     constant WindowParams& p [[buffer(2)]],
                     uint3 position [[thread_position_in_grid]]) {
  const Window w = find_window(p, position);
  float largest = -INFINITY;
  for (uint fy = 0; fy < p.window_h; ++fy) {
    const int y = w.top + int(fy);
    if (y < 0 || y >= int(p.in_h)) continue;
    for (uint fx = 0; fx < p.window_w; ++fx) {
      const int x = w.left + int(fx);
      if (x < 0 || x >= int(p.in_w)) continue;
      const float value = float(in[w.image + long(y) * p.in_y + long(x) * p.in_x]);
      // NaN stays, as it does on the CPU.
      largest = value > largest || value != value ? value : largest;
    }
  }
  out[w.out] = T(largest);
}

template <typename T>
kernel void avg_pool(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     constant WindowParams& p [[buffer(2)]],
                     uint3 position [[thread_position_in_grid]]) {
  const Window w = find_window(p, position);
  float sum = 0.0f;
  int count = 0;
  for (uint fy = 0; fy < p.window_h; ++fy) {
    const int y = w.top + int(fy);
    if (y < 0 || y >= int(p.in_h)) continue;
    for (uint fx = 0; fx < p.window_w; ++fx) {
      const int x = w.left + int(fx);
      if (x < 0 || x >= int(p.in_w)) continue;
      sum += float(in[w.image + long(y) * p.in_y + long(x) * p.in_x]);
      ++count;
    }
  }
  out[w.out] = T(sum / float(count));
}

// filter is [window_h, window_w, channels / multiplier, multiplier], `channels` being the output's.
template <typename T>
kernel void depthwise_conv(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                           constant WindowParams& p [[buffer(2)]],
                           device const T* filter [[buffer(3)]],
                           uint3 position [[thread_position_in_grid]]) {
  const Window w = find_window(p, position);
  float sum = 0.0f;
  for (uint fy = 0; fy < p.window_h; ++fy) {
    const int y = w.top + int(fy * p.dilation_h);
    if (y < 0 || y >= int(p.in_h)) continue;
    for (uint fx = 0; fx < p.window_w; ++fx) {
      const int x = w.left + int(fx * p.dilation_w);
      if (x < 0 || x >= int(p.in_w)) continue;
      const long term = long(fy * p.window_w + fx) * p.channels + w.channel;
      sum = fma(float(in[w.image + long(y) * p.in_y + long(x) * p.in_x]), float(filter[term]), sum);
    }
  }
  out[w.out] = T(sum);
}

// One thread a row.
template <typename T, bool kLog>
kernel void softmax(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                    constant uint& columns [[buffer(2)]], uint row [[thread_position_in_grid]]) {
  in += long(row) * columns;
  out += long(row) * columns;
  float largest = -INFINITY;
  for (uint i = 0; i < columns; ++i) largest = max(largest, float(in[i]));
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) sum += exp(float(in[i]) - largest);
  if (kLog) {
    const float shift = largest + log(sum);
    for (uint i = 0; i < columns; ++i) out[i] = T(float(in[i]) - shift);
  } else {
    const float scale = 1.0f / sum;
    for (uint i = 0; i < columns; ++i) out[i] = T(exp(float(in[i]) - largest) * scale);
  }
}

#define SPATIAL(type)                                               \
  INSTANTIATE_KERNEL("max_pool_" #type, max_pool, type)             \
  INSTANTIATE_KERNEL("avg_pool_" #type, avg_pool, type)             \
  INSTANTIATE_KERNEL("depthwise_conv_" #type, depthwise_conv, type) \
  INSTANTIATE_KERNEL("softmax_" #type, softmax, type, false)        \
  INSTANTIATE_KERNEL("log_softmax_" #type, softmax, type, true)
SPATIAL(float)
SPATIAL(half)
SPATIAL(bfloat)
