// Gradients of pooling and of depthwise convolution. A thread per element of the result adds its terms
// in one order: no atomics.

#include "device/kernels/nn/spatial_params.h"
#include "device/kernels/nn/windows.metal.h"
#include "device/kernels/strided.metal.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// The element of the input that a thread computes, the first of its lanes (spatial.metal).
struct Point {
  long image_at;  // where its image's channel begins in the input
  uint image, channel;
  int y, x;
};
template <uint kLanes>
inline Point find_point(constant WindowParams& p, uint3 position) {
  const uint channels = p.channels / p.multiplier;
  Point point;
  if (p.nchw) {
    point.image = position.z / channels;
    point.channel = position.z % channels;
    point.y = int(position.y);
    point.x = int(position.x);
  } else {
    point.image = position.z / p.in_h;
    point.channel = position.x * kLanes;
    point.y = int(position.z % p.in_h);
    point.x = int(position.y);
  }
  point.image_at = long(point.image) * p.in_image + long(point.channel) * p.in_c;
  return point;
}
inline long in_at(constant WindowParams& p, Point point, int y, int x) {
  return point.image_at + long(y) * p.in_y + long(x) * p.in_x;
}
inline long out_at(constant WindowParams& p, uint image, uint channel, int y, int x) {
  return p.nchw ? ((long(image) * p.channels + channel) * p.out_h + y) * p.out_w + x
                : ((long(image) * p.out_h + y) * p.out_w + x) * p.channels + channel;
}
inline Reach rows_of(constant WindowParams& p, Point point) {
  return reach_of(point.y, p.pad_top, p.window_h, p.dilation_h, p.stride_h, p.out_h);
}
inline Reach columns_of(constant WindowParams& p, Point point) {
  return reach_of(point.x, p.pad_left, p.window_w, p.dilation_w, p.stride_w, p.out_w);
}

// NaN is NaN's equal. An int: several lanes are compared at a time.
inline int equal(float a, float b) {
  return (a == b ? 1 : 0) | ((a != a ? 1 : 0) & (b != b ? 1 : 0));
}

// The gradient of a window is its first largest element's; of one with NaN the first NaN's.
template <typename T, uint kLanes>
kernel void max_pool_grad(device const T* in [[buffer(0)]], device const T* pooled [[buffer(1)]],
                          device const T* d_pooled [[buffer(2)]], device T* d_in [[buffer(3)]],
                          constant WindowParams& p [[buffer(4)]],
                          uint3 position [[thread_position_in_grid]]) {
  const Point point = find_point<kLanes>(p, position);
  const long here = in_at(p, point, point.y, point.x);
  float value[kLanes], sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) {
    value[k] = float(in[here + long(k)]);
    sum[k] = 0.0f;
  }
  const Reach rows = rows_of(p, point), columns = columns_of(p, point);
  for (int wy = rows.first; wy <= rows.last; ++wy) {
    const int fy = tap_of(rows, wy, p.stride_h, 1);
    for (int wx = columns.first; wx <= columns.last; ++wx) {
      const int fx = tap_of(columns, wx, p.stride_w, 1);
      const long out = out_at(p, point.image, point.channel, wy, wx);
      int first[kLanes], any = 0;
      for (uint k = 0; k < kLanes; ++k) {
        first[k] = equal(float(pooled[out + long(k)]), value[k]);
        any |= first[k];
      }
      for (int y = max(point.y - fy, 0); y <= point.y && any != 0; ++y) {
        const int end = y == point.y ? point.x : min(point.x - fx + int(p.window_w), int(p.in_w));
        for (int x = max(point.x - fx, 0); x < end && any != 0; ++x) {
          const long at = in_at(p, point, y, x);
          any = 0;
          for (uint k = 0; k < kLanes; ++k) {
            first[k] &= 1 - equal(float(in[at + long(k)]), value[k]);
            any |= first[k];
          }
        }
      }
      if (any == 0) continue;
      for (uint k = 0; k < kLanes; ++k) {
        sum[k] = first[k] != 0 ? sum[k] + float(d_pooled[out + long(k)]) : sum[k];
      }
    }
  }
  for (uint k = 0; k < kLanes; ++k) d_in[here + long(k)] = T(sum[k]);
}

template <typename T, uint kLanes>
kernel void avg_pool_grad(device const T* d_pooled [[buffer(0)]], device T* d_in [[buffer(1)]],
                          constant WindowParams& p [[buffer(2)]],
                          uint3 position [[thread_position_in_grid]]) {
  const Point point = find_point<kLanes>(p, position);
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  const Reach rows = rows_of(p, point), columns = columns_of(p, point);
  for (int wy = rows.first; wy <= rows.last; ++wy) {
    const int top = wy * int(p.stride_h) - p.pad_top;
    const int height = min(top + int(p.window_h), int(p.in_h)) - max(top, 0);
    for (int wx = columns.first; wx <= columns.last; ++wx) {
      const int left = wx * int(p.stride_w) - p.pad_left;
      const int width = min(left + int(p.window_w), int(p.in_w)) - max(left, 0);
      const long out = out_at(p, point.image, point.channel, wy, wx);
      const float size = float(height * width);
      for (uint k = 0; k < kLanes; ++k) sum[k] += float(d_pooled[out + long(k)]) / size;
    }
  }
  const long here = in_at(p, point, point.y, point.x);
  for (uint k = 0; k < kLanes; ++k) d_in[here + long(k)] = T(sum[k]);
}

template <typename T, uint kLanes>
kernel void depthwise_input_grad(device const T* filter [[buffer(0)]],
                                 device const T* d_out [[buffer(1)]], device T* d_in [[buffer(2)]],
                                 constant WindowParams& p [[buffer(3)]],
                                 uint3 position [[thread_position_in_grid]]) {
  const Point point = find_point<kLanes>(p, position);
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  const Reach rows = rows_of(p, point), columns = columns_of(p, point);
  for (int y = rows.last; y >= rows.first; --y) {
    const int fy = tap_of(rows, y, p.stride_h, p.dilation_h);
    if (fy < 0) continue;
    for (int x = columns.last; x >= columns.first; --x) {
      const int fx = tap_of(columns, x, p.stride_w, p.dilation_w);
      if (fx < 0) continue;
      for (uint m = 0; m < p.multiplier; ++m) {
        const uint channel = point.channel * p.multiplier + m;
        const long out = out_at(p, point.image, channel, y, x);
        const long term = long(fy * int(p.window_w) + fx) * p.channels + channel;
        for (uint k = 0; k < kLanes; ++k) {
          sum[k] = fma(float(d_out[out + long(k)]), float(filter[term + long(k)]), sum[k]);
        }
      }
    }
  }
  const long here = in_at(p, point, point.y, point.x);
  for (uint k = 0; k < kLanes; ++k) d_in[here + long(k)] = T(sum[k]);
}

// One row of one image's outputs a thread: (output channel, element of the window, row).
template <typename T, uint kLanes>
kernel void depthwise_filter_parts(device const T* in [[buffer(0)]],
                                   device const T* d_out [[buffer(1)]],
                                   device float* parts [[buffer(2)]],
                                   constant WindowParams& p [[buffer(3)]],
                                   uint3 position [[thread_position_in_grid]]) {
  const uint channel = position.x * kLanes, fy = position.y / p.window_w,
             fx = position.y % p.window_w;
  const uint image = position.z / p.out_h, row = position.z % p.out_h;
  const long image_at = long(image) * p.in_image + long(channel / p.multiplier) * p.in_c;
  const int y = int(row * p.stride_h + fy * p.dilation_h) - p.pad_top;
  float sum[kLanes];
  for (uint k = 0; k < kLanes; ++k) sum[k] = 0.0f;
  if (y >= 0 && y < int(p.in_h)) {
    for (uint column = 0; column < p.out_w; ++column) {
      const int x = int(column * p.stride_w + fx * p.dilation_w) - p.pad_left;
      if (x < 0 || x >= int(p.in_w)) continue;
      const long at = image_at + long(y) * p.in_y + long(x) * p.in_x;
      const long out = out_at(p, image, channel, int(row), int(column));
      for (uint k = 0; k < kLanes; ++k) {
        sum[k] = fma(float(in[at + long(k)]), float(d_out[out + long(k)]), sum[k]);
      }
    }
  }
  const ulong to =
      (ulong(position.z) * p.window_h * p.window_w + position.y) * p.channels + channel;
  for (uint k = 0; k < kLanes; ++k) parts[to + k] = sum[k];
}

// Grid: the filter's elements. Thirty-two sums that are summed, so that errors do not grow with rows.
template <typename T>
kernel void depthwise_filter_sum(device const float* parts [[buffer(0)]],
                                 device T* d_filter [[buffer(1)]],
                                 constant uint& rows [[buffer(2)]],
                                 constant uint& elements [[buffer(3)]],
                                 uint i [[thread_position_in_grid]]) {
  float total = 0.0f;
  const uint piece = (rows + 31) / 32;
  for (uint begin = 0; begin < rows; begin += piece) {
    float sum = 0.0f;
    for (uint row = begin; row < min(begin + piece, rows); ++row) {
      sum += parts[ulong(row) * elements + i];
    }
    total += sum;
  }
  d_filter[i] = T(total);
}

#define WINDOWS(name, function, type)                                    \
  INSTANTIATE_KERNEL(name "_" #type, function, type, 1)                  \
  INSTANTIATE_KERNEL(name "_lanes_" #type, function, type, WINDOW_LANES) \
  INSTANTIATE_KERNEL(name "_many_lanes_" #type, function, type, WINDOW_MANY_LANES)
#define SPATIAL_GRAD(type)                                        \
  WINDOWS("max_pool_grad", max_pool_grad, type)                   \
  WINDOWS("avg_pool_grad", avg_pool_grad, type)                   \
  WINDOWS("depthwise_input_grad", depthwise_input_grad, type)     \
  WINDOWS("depthwise_filter_parts", depthwise_filter_parts, type) \
  INSTANTIATE_KERNEL("depthwise_filter_sum_" #type, depthwise_filter_sum, type)
SPATIAL_GRAD(float)
SPATIAL_GRAD(half)
IF_BFLOAT(SPATIAL_GRAD(bfloat))
