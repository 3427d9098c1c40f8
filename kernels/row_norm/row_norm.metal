// The shaders of RowNorm and RowNormGrad: a row is a SIMD group's, or a thread's where those are
// played one after the other.

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/msl/row_sum.h"
#include "kernels/row_norm/row_norm_params.h"

using namespace metal;

// Grid: kLanes x rows.
template <typename T, int kLanes>
[[kernel]] void row_norm(device const T* x [[buffer(0)]], device const T* scale [[buffer(1)]],
                         device const T* offset [[buffer(2)]], device T* y [[buffer(3)]],
                         device float* means [[buffer(4)]], device float* factors [[buffer(5)]],
                         constant RowNormParams& params [[buffer(6)]],
                         uint2 position [[thread_position_in_grid]]) {
  const long n = params.columns, first = long(position.y) * n;
  float mean = 0.0f;
  if (params.center != 0) {
    float sum = 0.0f;
    for (long i = position.x; i < n; i += kLanes) sum += float(x[first + i]);
    mean = row_sum<kLanes>(sum) / float(n);
  }
  // The mean's rounding error is found on the way.
  float squares = 0.0f, error = 0.0f;
  for (long i = position.x; i < n; i += kLanes) {
    const float d = float(x[first + i]) - mean;
    squares = fma(d, d, squares);
    error += d;
  }
  error = params.center != 0 ? row_sum<kLanes>(error) / float(n) : 0.0f;
  const float square = row_sum<kLanes>(squares) / float(n) - error * error;
  mean += error;
  const float factor =
      1.0f / precise::sqrt(square < 0.0f ? params.epsilon : square + params.epsilon);
  for (long i = position.x; i < n; i += kLanes) {
    const float scaled = (float(x[first + i]) - mean) * factor * float(scale[i]);
    y[first + i] = T(params.use_offset != 0 ? scaled + float(offset[i]) : scaled);
  }
  if (position.x == 0) {
    means[position.y] = mean;
    factors[position.y] = factor;
  }
}

template <typename T, int kLanes>
[[kernel]] void row_norm_d_x(device const T* d_y [[buffer(0)]], device const T* x [[buffer(1)]],
                             device const T* scale [[buffer(2)]],
                             device const float* means [[buffer(3)]],
                             device const float* factors [[buffer(4)]], device T* d_x [[buffer(5)]],
                             constant RowNormParams& params [[buffer(6)]],
                             uint2 position [[thread_position_in_grid]]) {
  const long n = params.columns, first = long(position.y) * n;
  const float mean = means[position.y], factor = factors[position.y];
  float sum = 0.0f, product = 0.0f;
  for (long i = position.x; i < n; i += kLanes) {
    const float g = float(d_y[first + i]) * float(scale[i]);
    sum += g;
    product = fma(g, (float(x[first + i]) - mean) * factor, product);
  }
  sum = params.center != 0 ? row_sum<kLanes>(sum) / float(n) : 0.0f;
  product = row_sum<kLanes>(product) / float(n);
  for (long i = position.x; i < n; i += kLanes) {
    const float normal = (float(x[first + i]) - mean) * factor;
    const float g = float(d_y[first + i]) * float(scale[i]) - sum;
    d_x[first + i] = T(fma(-normal, product, g) * factor);
  }
}

// Sums over a part of the rows, [parts, 2, columns]: of d_scale and d_offset. Grid: columns x parts.
template <typename T>
[[kernel]] void row_norm_parts(device const T* d_y [[buffer(0)]], device const T* x [[buffer(1)]],
                               device const float* means [[buffer(2)]],
                               device const float* factors [[buffer(3)]],
                               device float* parts [[buffer(4)]],
                               constant RowNormParams& params [[buffer(5)]],
                               uint2 position [[thread_position_in_grid]]) {
  const long n = params.columns, begin = long(position.y) * params.part_rows;
  const long end = min(params.rows, begin + params.part_rows);
  float d_scale = 0.0f, d_offset = 0.0f;
  for (long row = begin; row < end; ++row) {
    const float d = float(d_y[row * n + position.x]);
    d_scale = fma(d, (float(x[row * n + position.x]) - means[row]) * factors[row], d_scale);
    d_offset += d;
  }
  device float* const to = parts + long(position.y) * 2 * n + position.x;
  to[0] = d_scale;
  to[n] = d_offset;
}

template <typename T>
[[kernel]] void row_norm_sum(device const float* parts [[buffer(0)]],
                             device T* d_scale [[buffer(1)]], device T* d_offset [[buffer(2)]],
                             constant RowNormParams& params [[buffer(3)]],
                             uint position [[thread_position_in_grid]]) {
  const long n = params.columns;
  float scale = 0.0f, offset = 0.0f;
  for (uint part = 0; part < params.n_parts; ++part) {
    scale += parts[long(part) * 2 * n + position];
    offset += parts[long(part) * 2 * n + n + position];
  }
  d_scale[position] = T(scale);
  d_offset[position] = T(offset);
}

#define INSTANTIATE(T)                                              \
  INSTANTIATE_KERNEL("row_norm_" #T "_1", row_norm, T, 1)           \
  INSTANTIATE_KERNEL("row_norm_" #T "_32", row_norm, T, 32)         \
  INSTANTIATE_KERNEL("row_norm_d_x_" #T "_1", row_norm_d_x, T, 1)   \
  INSTANTIATE_KERNEL("row_norm_d_x_" #T "_32", row_norm_d_x, T, 32) \
  INSTANTIATE_KERNEL("row_norm_parts_" #T, row_norm_parts, T)       \
  INSTANTIATE_KERNEL("row_norm_sum_" #T, row_norm_sum, T)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
