// The shaders of FusedMlp and FusedMlpGrad: threads that work alone, each with a few rows of the
// batch (or of a matrix), whose values stay in its own memory from layer to layer.

#include <metal_stdlib>

#include "kernels/fused_mlp/fused_mlp_activation.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

constexpr constant int kRows = MLP_THREAD_ROWS, kPanel = MLP_PANEL;

// Weights in float32, each matrix in panels of kPanel columns: element (i, j) of a panel is its
// i * kPanel + j. One thread per element; z counts layers, then transposes.
template <typename T>
[[kernel]] void fused_mlp_pack(device const T* weights [[buffer(0)]],
                               device float* packed [[buffer(1)]],
                               constant MlpParams& params [[buffer(2)]],
                               uint3 at [[thread_position_in_grid]]) {
  const MlpSizes s = mlp_sizes(params);
  const bool transpose = at.z >= s.n_layers;
  const uint layer = at.z - (transpose ? s.n_layers : 0);
  const uint rows = mlp_rows(s, layer), columns = mlp_columns(s, layer);
  const uint from = mlp_matrix(s, layer);
  const uint n_rows = mlp_padded(transpose ? columns : rows);
  const uint n_columns = mlp_padded(transpose ? rows : columns);
  if (!transpose && at.y == 0) {
    const bool there = s.use_bias != 0 && at.x < columns;
    packed[mlp_packed_bias(s, layer) + at.x] =
        there ? float(weights[from + rows * columns + at.x]) : 0.0f;
  }
  if (at.x >= n_columns || at.y >= n_rows) return;
  const uint row = transpose ? at.x : at.y, column = transpose ? at.y : at.x;
  const uint to = transpose ? mlp_packed_transpose(s, layer) : mlp_packed(s, layer);
  packed[to + (at.x / kPanel * n_rows + at.y) * kPanel + at.x % kPanel] =
      row < rows && column < columns ? float(weights[from + row * columns + column]) : 0.0f;
}

// A thread's values of a layer.
struct MlpRows {
  float at[kRows][MLP_MOST_COLUMNS];
};

// sums += x times per panel with that many rows.
inline void mlp_add(thread const MlpRows& x, uint terms, device const float* panel,
                    thread float (&sums)[kRows][kPanel]) {
  // A copy that is never indexed by a variable: it lives in registers.
  float local[kRows][kPanel];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kPanel; ++j) local[r][j] = sums[r][j];
  }
  for (uint i = 0; i < terms; ++i, panel += kPanel) {
    for (int r = 0; r < kRows; ++r) {
      const float value = x.at[r][i];
      for (int j = 0; j < kPanel; ++j) local[r][j] = fma(value, panel[j], local[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kPanel; ++j) sums[r][j] = local[r][j];
  }
}

template <typename T>
inline void mlp_read(device const T* from, uint columns, long last, thread MlpRows& to) {
  for (int r = 0; r < kRows; ++r) {
    device const T* const line = from + min(long(r), last) * long(columns);
    for (uint j = 0; j < columns; ++j) to.at[r][j] = float(line[j]);
  }
}

// y = activation(x W + b), rounded to T.
template <typename T>
inline void mlp_layer(constant MlpParams& params, device const float* packed, uint layer,
                      thread const MlpRows& x, thread MlpRows& y) {
  const MlpSizes s = mlp_sizes(params);
  const uint rows = mlp_rows(s, layer), columns = mlp_columns(s, layer);
  const uint activation = layer + 1 == s.n_layers ? mlp_output_activation : mlp_activation;
  device const float* const matrix = packed + mlp_packed(s, layer);
  device const float* const bias = packed + mlp_packed_bias(s, layer);
  for (uint column = 0; column < columns; column += kPanel) {
    float sums[kRows][kPanel];
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kPanel; ++j) sums[r][j] = bias[column + j];
    }
    mlp_add(x, rows, matrix + column * mlp_padded(rows), sums);
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kPanel; ++j) {
        y.at[r][column + j] = float(T(mlp_activated(activation, mlp_shape(params), sums[r][j])));
      }
    }
  }
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(32)]] void fused_mlp_threads(
    device const T* x [[buffer(0)]], device const float* packed [[buffer(1)]],
    device T* outputs [[buffer(2)]], constant MlpParams& params [[buffer(3)]],
    uint position [[thread_position_in_grid]]) {
  const MlpSizes s = mlp_sizes(params);
  const long row = params.first + long(position) * kRows;
  const int rows = int(min(long(kRows), params.first + long(params.rows) - row));
  MlpRows a, b;
  mlp_read(x + row * long(s.inputs), s.inputs, rows - 1, a);
  for (uint layer = 0; layer < s.n_layers; ++layer) {
    mlp_layer<T>(params, packed, layer, a, b);
    a = b;
  }
  for (int r = 0; r < rows; ++r) {
    for (uint j = 0; j < s.outputs; ++j) outputs[(row + r) * long(s.outputs) + j] = T(a.at[r][j]);
  }
}

// Values and gradients of a few rows of a chunk: into scratch, and into d_x.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(32)]] void fused_mlp_threads_backward(
    device const T* d_outputs [[buffer(0)]], device const T* x [[buffer(1)]],
    device const float* packed [[buffer(2)]], device T* scratch [[buffer(3)]],
    device T* d_x [[buffer(4)]], constant MlpParams& params [[buffer(5)]],
    uint position [[thread_position_in_grid]]) {
  const MlpSizes s = mlp_sizes(params);
  const long at = long(position) * kRows, row = params.first + at;
  const int rows = int(min(long(kRows), long(params.rows) - at));
  MlpRows a, b;
  mlp_read(x + row * long(s.inputs), s.inputs, rows - 1, a);
  for (uint layer = 0; layer < s.n_layers; ++layer) {
    mlp_layer<T>(params, packed, layer, a, b);
    a = b;
    if (layer + 1 == s.n_layers) break;
    device T* const to = scratch + mlp_values_at(s, params.chunk, layer) + at * long(s.width);
    for (int r = 0; r < rows; ++r) {
      for (uint j = 0; j < s.width; ++j) to[r * int(s.width) + int(j)] = T(a.at[r][j]);
    }
  }

  mlp_read(d_outputs + row * long(s.outputs), s.outputs, rows - 1, b);
  for (uint layer = s.n_layers; layer-- > 0;) {
    // b is the gradient of the layer's values, a its values.
    const uint columns = mlp_columns(s, layer), line = mlp_slopes_line(s, layer);
    const uint activation = layer + 1 == s.n_layers ? mlp_output_activation : mlp_activation;
    device T* const to = scratch + mlp_slopes_at(s, params.chunk, layer) + at * long(line);
    if (layer + 1 < s.n_layers) {
      mlp_read(scratch + mlp_values_at(s, params.chunk, layer) + at * long(s.width), s.width,
               rows - 1, a);
    }
    for (int r = 0; r < kRows; ++r) {
      for (uint j = 0; j < line; ++j) {
        const float d = mlp_times_slope(activation, mlp_shape(params), b.at[r][j], a.at[r][j]);
        b.at[r][j] = j < columns ? float(T(d)) : 0.0f;
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (uint j = 0; j < line; ++j) to[r * int(line) + int(j)] = T(b.at[r][j]);
    }
    if (layer == 0 && params.x_gradient == 0) break;
    const uint before = mlp_rows(s, layer);
    device const float* const matrix = packed + mlp_packed_transpose(s, layer);
    for (uint column = 0; column < before; column += kPanel) {
      float sums[kRows][kPanel] = {};
      mlp_add(b, columns, matrix + column * line, sums);
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < kPanel; ++j) a.at[r][column + j] = sums[r][j];
      }
    }
    b = a;
  }
  if (params.x_gradient == 0) return;
  for (int r = 0; r < rows; ++r) {
    for (uint j = 0; j < s.inputs; ++j) d_x[(row + r) * long(s.inputs) + j] = T(b.at[r][j]);
  }
}

// A part of a layer's gradient: kRows rows and kPanel columns of its matrix, summed over a split of
// the chunk. The row behind the last is that of the biases, whose input is 1.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(32)]] void fused_mlp_threads_weights(
    device const T* x [[buffer(0)]], device const T* scratch [[buffer(1)]],
    device float* parts [[buffer(2)]], constant MlpParams& params [[buffer(3)]],
    uint3 position [[thread_position_in_grid]]) {
  const MlpSizes s = mlp_sizes(params);
  const uint layer = params.layer, line = mlp_slopes_line(s, layer);
  const uint rows = mlp_rows(s, layer), columns = mlp_columns(s, layer);
  const uint first = params.first_row + position.x * kRows, column = position.y * kPanel;
  const uint begin = position.z * params.split, end = min(begin + params.split, params.rows);
  device const T* const values = layer == 0 ? x + params.first * long(s.inputs)
                                            : scratch + mlp_values_at(s, params.chunk, layer - 1);
  device const T* slopes =
      scratch + mlp_slopes_at(s, params.chunk, layer) + long(begin) * long(line) + column;
  float sums[kRows][kPanel] = {};
  for (uint n = begin; n < end; ++n, slopes += line) {
    device const T* const value = values + long(n) * long(rows);
    float local[kPanel];
    for (int j = 0; j < kPanel; ++j) local[j] = float(slopes[j]);
    for (int r = 0; r < kRows; ++r) {
      const uint i = first + uint(r);
      const float factor = i < rows ? float(value[i]) : 1.0f;
      for (int j = 0; j < kPanel; ++j) sums[r][j] = fma(factor, local[j], sums[r][j]);
    }
  }
  device float* const to = parts + long(position.z) * long(params.n_weights) + mlp_matrix(s, layer);
  const uint all = rows + (s.use_bias != 0 ? 1 : 0);
  for (uint r = 0; r < kRows && first + r < all; ++r) {
    for (uint j = 0; j < kPanel && column + j < columns; ++j) {
      const uint i = (first + r) * columns + column + j;
      to[i] = sums[r][j] + (params.adds != 0 ? to[i] : 0.0f);
    }
  }
}

// The sum of all parts, in their order.
template <typename T>
[[kernel]] void fused_mlp_sum(device const float* parts [[buffer(0)]],
                              device T* d_weights [[buffer(1)]],
                              constant MlpParams& params [[buffer(2)]],
                              constant uint& n_parts [[buffer(3)]],
                              uint position [[thread_position_in_grid]]) {
  float sum = 0.0f;
  for (uint part = 0; part < n_parts; ++part) {
    sum += parts[long(part) * long(params.n_weights) + position];
  }
  d_weights[position] = T(sum);
}

#define INSTANTIATE_MLP(name, T)                                                        \
  INSTANTIATE_KERNEL("fused_mlp_pack_" name, fused_mlp_pack, T)                         \
  INSTANTIATE_KERNEL("fused_mlp_threads_" name, fused_mlp_threads, T)                   \
  INSTANTIATE_KERNEL("fused_mlp_threads_backward_" name, fused_mlp_threads_backward, T) \
  INSTANTIATE_KERNEL("fused_mlp_threads_weights_" name, fused_mlp_threads_weights, T)   \
  INSTANTIATE_KERNEL("fused_mlp_sum_" name, fused_mlp_sum, T)
INSTANTIATE_MLP("float", float)
INSTANTIATE_MLP("half", half)
IF_BFLOAT(INSTANTIATE_MLP("bfloat", bfloat))
