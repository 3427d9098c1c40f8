// MaxPool, AvgPool, DepthwiseConv2dNative and Softmax.

#include "device/kernels/nn/rows.metal.h"
#include "device/kernels/nn/spatial_params.h"
#include "device/kernels/nn/windows.metal.h"
#include "device/kernels/strided.metal.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// A thread computes kLanes outputs whose channels are neighbours in memory: WINDOW_MANY_LANES or
// WINDOW_LANES with NHWC, of channels that are a multiple of it, or 1.

// The output that a thread computes, the first of its lanes, and the beginning of its window.
struct Window {
  long image;  // of the input, with the channel
  uint channel;
  int top, left;
  long out;
};
template <uint kLanes>
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
    w.channel = position.x * kLanes;
    y = position.z % p.out_h;
    x = position.y;
    w.out = (long(position.z) * p.out_w + x) * p.channels + w.channel;
  }
  w.image = long(image) * p.in_image + long(w.channel / p.multiplier) * p.in_c;
  w.top = int(y * p.stride_h) - p.pad_top;
  w.left = int(x * p.stride_w) - p.pad_left;
  return w;
}

// Where the window's point (y, x) lies.
inline long in_at(constant WindowParams& p, Window w, uint y, uint x) {
  return w.image + long(w.top + int(y)) * p.in_y + long(w.left + int(x)) * p.in_x;
}

template <typename T, uint kLanes>
kernel void max_pool(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     constant WindowParams& p [[buffer(2)]],
                     uint3 position [[thread_position_in_grid]]) {
  const Window w = find_window<kLanes>(p, position);
  float largest[kLanes];
  for (uint k = 0; k < kLanes; ++k) largest[k] = -INFINITY;
  const Taps rows = taps_within(w.top, p.window_h, 1, p.in_h);
  const Taps columns = taps_within(w.left, p.window_w, 1, p.in_w);
  for (uint fy = rows.begin; fy < rows.end; ++fy) {
    device const T* from = in + in_at(p, w, fy, columns.begin);
    for (uint fx = columns.begin; fx < columns.end; ++fx, from += p.in_x) {
      for (uint k = 0; k < kLanes; ++k) {
        const float value = float(from[k]);
        // NaN stays, as it does on the CPU.
        largest[k] = value > largest[k] || value != value ? value : largest[k];
      }
    }
  }
  for (uint k = 0; k < kLanes; ++k) out[w.out + long(k)] = T(largest[k]);
}

template <typename T, uint kLanes>
kernel void avg_pool(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     constant WindowParams& p [[buffer(2)]],
                     uint3 position [[thread_position_in_grid]]) {
  const Window w = find_window<kLanes>(p, position);
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  const Taps rows = taps_within(w.top, p.window_h, 1, p.in_h);
  const Taps columns = taps_within(w.left, p.window_w, 1, p.in_w);
  for (uint fy = rows.begin; fy < rows.end; ++fy) {
    device const T* from = in + in_at(p, w, fy, columns.begin);
    for (uint fx = columns.begin; fx < columns.end; ++fx, from += p.in_x) {
      for (uint k = 0; k < kLanes; ++k) sum[k] += float(from[k]);
    }
  }
  const float count = float(max(int(rows.end) - int(rows.begin), 0)) *
                      float(max(int(columns.end) - int(columns.begin), 0));
  for (uint k = 0; k < kLanes; ++k) out[w.out + long(k)] = T(sum[k] / count);
}

// filter is [window_h, window_w, channels / multiplier, multiplier], `channels` being the output's. Lanes
// are for a multiplier of 1.
template <typename T, uint kLanes>
kernel void depthwise_conv(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                           constant WindowParams& p [[buffer(2)]],
                           device const T* filter [[buffer(3)]],
                           uint3 position [[thread_position_in_grid]]) {
  const Window w = find_window<kLanes>(p, position);
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  const Taps rows = taps_within(w.top, p.window_h, p.dilation_h, p.in_h);
  const Taps columns = taps_within(w.left, p.window_w, p.dilation_w, p.in_w);
  const long step = long(p.in_x) * p.dilation_w;
  for (uint fy = rows.begin; fy < rows.end; ++fy) {
    device const T* from = in + in_at(p, w, fy * p.dilation_h, columns.begin * p.dilation_w);
    device const T* by = filter + long(fy * p.window_w + columns.begin) * p.channels + w.channel;
    for (uint fx = columns.begin; fx < columns.end; ++fx, from += step, by += p.channels) {
      for (uint k = 0; k < kLanes; ++k) sum[k] = fma(float(from[k]), float(by[k]), sum[k]);
    }
  }
  for (uint k = 0; k < kLanes; ++k) out[w.out + long(k)] = T(sum[k]);
}

// One thread per row.
template <typename T, bool kLog>
kernel void softmax(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                    constant uint& columns [[buffer(2)]], uint row [[thread_position_in_grid]]) {
  in += long(row) * columns;
  out += long(row) * columns;
  const float largest = row_largest(in, columns);
  const RowExp<T> exps = {in, largest};
  const float sum = row_sum(columns, exps);
  if (kLog) {
    // Their sum would round the logarithm away beside large numbers.
    const float rest = log(sum);
    for (uint i = 0; i < columns; ++i) out[i] = T((float(in[i]) - largest) - rest);
  } else {
    const float scale = 1.0f / sum;
    for (uint i = 0; i < columns; ++i) out[i] = T(exps(i) * scale);
  }
}

#define WINDOWS(name, function, type)                                    \
  INSTANTIATE_KERNEL(name "_" #type, function, type, 1)                  \
  INSTANTIATE_KERNEL(name "_lanes_" #type, function, type, WINDOW_LANES) \
  INSTANTIATE_KERNEL(name "_many_lanes_" #type, function, type, WINDOW_MANY_LANES)
#define SPATIAL(type)                                        \
  WINDOWS("max_pool", max_pool, type)                        \
  WINDOWS("avg_pool", avg_pool, type)                        \
  WINDOWS("depthwise_conv", depthwise_conv, type)            \
  INSTANTIATE_KERNEL("softmax_" #type, softmax, type, false) \
  INSTANTIATE_KERNEL("log_softmax_" #type, softmax, type, true)
SPATIAL(float)
SPATIAL(half)
IF_BFLOAT(SPATIAL(bfloat))
