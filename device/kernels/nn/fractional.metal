// The largest number of each window, where windows begin and end as `rows` and `columns` say: pairs of the
// first and the last place. And the gradient: where the largest number of each window is, the first of them if
// several are; each number then gathers the slopes of the windows that it is the largest of, in their order.

#include <metal_stdlib>

#include "device/kernels/nn/fractional_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// The place of the largest number of the window of a result in its plane, and that number. Grids of results are:
// channels, columns, rows of all images.
template <typename T>
inline uint largest_of(device const T* in, device const int2* row_ends,
                       device const int2* column_ends, constant FractionalParams& p, uint3 result,
                       thread T& largest) {
  const uint image = result.z / p.out_h;
  const int2 rows = row_ends[result.z % p.out_h], columns = column_ends[result.y];
  device const T* const plane = in + ulong(image) * p.in_h * p.in_w * p.channels + result.x;
  uint found = uint(rows.x) * p.in_w + uint(columns.x);
  largest = plane[ulong(found) * p.channels];
  for (int h = rows.x; h <= rows.y; ++h) {
    for (int w = columns.x; w <= columns.y; ++w) {
      const uint at = uint(h) * p.in_w + uint(w);
      const T x = plane[ulong(at) * p.channels];
      if (largest < x) {
        largest = x;
        found = at;
      }
    }
  }
  return found;
}

inline ulong place_of(constant FractionalParams& p, uint3 result) {
  return (ulong(result.z) * p.out_w + result.y) * p.channels + result.x;
}

template <typename T>
kernel void fractional_max_pool(device const T* in [[buffer(0)]],
                                device const int2* rows [[buffer(1)]],
                                device const int2* columns [[buffer(2)]],
                                device T* out [[buffer(3)]],
                                constant FractionalParams& p [[buffer(4)]],
                                uint3 position [[thread_position_in_grid]]) {
  T largest;
  largest_of(in, rows, columns, p, position, largest);
  out[place_of(p, position)] = largest;
}

// Where that number is, in its plane of the input.
template <typename T>
kernel void fractional_max_pool_places(device const T* in [[buffer(0)]],
                                       device const int2* rows [[buffer(1)]],
                                       device const int2* columns [[buffer(2)]],
                                       device uint* places [[buffer(3)]],
                                       constant FractionalParams& p [[buffer(4)]],
                                       uint3 position [[thread_position_in_grid]]) {
  T largest;
  places[place_of(p, position)] = largest_of(in, rows, columns, p, position, largest);
}

// `row_windows` and `column_windows` are pairs, too: the first and the last window that a place is in. Grid:
// channels, columns of the input, its rows of all images.
template <typename T>
kernel void fractional_max_pool_grad(device const uint* places [[buffer(0)]],
                                     device const T* d_out [[buffer(1)]],
                                     device const int2* row_windows [[buffer(2)]],
                                     device const int2* column_windows [[buffer(3)]],
                                     device T* d_in [[buffer(4)]],
                                     constant FractionalParams& p [[buffer(5)]],
                                     uint3 position [[thread_position_in_grid]]) {
  const uint image = position.z / p.in_h, row = position.z % p.in_h, column = position.y;
  const int2 in_rows = row_windows[row], in_columns = column_windows[column];
  T sum = T(0);
  for (int r = in_rows.x; r <= in_rows.y; ++r) {
    for (int c = in_columns.x; c <= in_columns.y; ++c) {
      const ulong window = place_of(p, uint3(position.x, uint(c), image * p.out_h + uint(r)));
      sum += places[window] == row * p.in_w + column ? d_out[window] : T(0);
    }
  }
  d_in[(ulong(position.z) * p.in_w + column) * p.channels + position.x] = sum;
}

#define FRACTIONAL(type)                                                                    \
  INSTANTIATE_KERNEL("fractional_max_pool_" #type, fractional_max_pool, type)               \
  INSTANTIATE_KERNEL("fractional_max_pool_places_" #type, fractional_max_pool_places, type) \
  INSTANTIATE_KERNEL("fractional_max_pool_grad_" #type, fractional_max_pool_grad, type)
FRACTIONAL(float)
FRACTIONAL(long)
