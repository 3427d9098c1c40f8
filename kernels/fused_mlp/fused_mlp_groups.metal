// FusedMlp and FusedMlpGrad where the threads of a simdgroup really run at once: each simdgroup has
// a few rows of the batch, whose values stay in its registers as operands of the matrix unit.

#include <metal_stdlib>

#include "kernels/fused_mlp/fused_mlp_group.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#define MLP_GROUP_THREADS 128
constexpr constant uint kSimdgroups = MLP_GROUP_THREADS / 32;

// Weights as right operands, 16x8 each, those of 8 columns side by side; padded with zeros. One
// thread per element; z counts layers, then transposes.
template <typename T>
[[kernel]] void fused_mlp_group_pack(device const T* weights [[buffer(0)]],
                                     device T* packed [[buffer(1)]],
                                     device float* biases [[buffer(2)]],
                                     constant MlpParams& params [[buffer(3)]],
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
    biases[layer * MLP_MOST_COLUMNS + at.x] =
        there ? float(weights[from + rows * columns + at.x]) : 0.0f;
  }
  if (at.x >= n_columns || at.y >= n_rows) return;
  const uint row = transpose ? at.x : at.y, column = transpose ? at.y : at.x;
  const uint block = at.x / 8 * (n_rows / 16) + at.y / 16;
  const uint to = transpose ? mlp_packed_transpose(s, layer) : mlp_packed(s, layer);
  packed[to + block * 128 + Rows<T>::position(at.y % 16, at.x % 8)] =
      T(row < rows && column < columns ? float(weights[from + row * columns + column]) : 0.0f);
}

template <typename T, int W>
[[kernel, max_total_threads_per_threadgroup(MLP_GROUP_THREADS)]] void fused_mlp_groups(
    device const T* x [[buffer(0)]], device const T* packed [[buffer(1)]],
    device const float* biases [[buffer(2)]], device T* outputs [[buffer(3)]],
    constant MlpParams& params [[buffer(4)]], uint position [[thread_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float space[kSimdgroups * ROWS16_STAGE];
  const MlpSizes s = mlp_sizes(params);
  const uint at = position / 32 * MLP_GROUP_ROWS(W);
  const long row = params.first + long(at);
  constexpr int kBlocks = MLP_GROUP_ROWS(W) / 16;
  MlpGroup<T, W, kBlocks> group;
  group.packed = packed;
  group.biases = biases;
  group.space = space + simdgroup * ROWS16_STAGE;
  group.lane = lane;
  group.rows = int(params.rows - at);
  group.s = s;
  group.shape = mlp_shape(params);
  group.first_layer(x + row * long(s.inputs));
  group.end_layer(nullptr);
  for (uint layer = 1; layer + 1 < s.n_layers; ++layer) {
    group.hidden_layer(layer);
    group.end_layer(nullptr);
  }
  device T* const to = outputs + row * long(s.outputs);
  for (uint n = 0; 8 * n < s.outputs; ++n) {
    typename Rows<T>::Sums16 sums[kBlocks];
    group.output_columns(n, sums);
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) {
      Rows<T>::store(sums[m], group.piece(to, s.outputs, m, 8 * n, s.outputs), group.space, lane);
    }
  }
}

// Values and gradients of a few rows of a chunk: into scratch, and into d_x.
template <typename T, int W>
[[kernel, max_total_threads_per_threadgroup(MLP_GROUP_THREADS)]] void fused_mlp_groups_backward(
    device const T* d_outputs [[buffer(0)]], device const T* x [[buffer(1)]],
    device const T* packed [[buffer(2)]], device const float* biases [[buffer(3)]],
    device T* scratch [[buffer(4)]], device T* d_x [[buffer(5)]],
    constant MlpParams& params [[buffer(6)]], uint position [[thread_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float space[kSimdgroups * ROWS16_STAGE];
  using Ops = Rows<T>;
  constexpr int kBlocks = MLP_BACKWARD_ROWS / 16;
  using Group = MlpGroup<T, W, kBlocks>;
  const MlpSizes s = mlp_sizes(params);
  const uint at = position / 32 * MLP_BACKWARD_ROWS;
  const long row = params.first + long(at);
  Group group;
  group.packed = packed;
  group.biases = biases;
  group.space = space + simdgroup * ROWS16_STAGE;
  group.lane = lane;
  group.rows = int(params.rows - at);
  group.s = s;
  group.shape = mlp_shape(params);
  device T* const values = scratch + long(at) * W;  // of layer 0
  group.first_layer(x + row * long(s.inputs));
  group.end_layer(values);
  for (uint layer = 1; layer + 1 < s.n_layers; ++layer) {
    group.hidden_layer(layer);
    group.end_layer(values + mlp_values_at(s, params.chunk, layer));
  }

  // The last layer, 16 outputs at a time: their gradient, and its part of that of the last hidden
  // values.
  ROWS_UNROLL
  for (int n = 0; n < Group::kSums; ++n) {
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) Ops::clear(group.sums[m][n]);
  }
  const uint last = s.n_layers - 1, line = mlp_slopes_line(s, last);
  device T* const last_slopes =
      scratch + mlp_slopes_at(s, params.chunk, last) + long(at) * long(line);
  device const T* const d_rows = d_outputs + row * long(s.outputs);
  for (uint k = 0; k < line / 16; ++k) {
    typename Ops::Sums16 d[kBlocks][2];
    ROWS_UNROLL
    for (int half_ = 0; half_ < 2; ++half_) {
      const uint n = 2 * k + uint(half_);
      typename Ops::Sums16 outputs[kBlocks];
      if (mlp_output_activation != MLP_NONE) group.output_columns(n, outputs);
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) {
        thread typename Ops::Sums16& to = d[m][half_];
        Ops::load(to, group.piece(d_rows, s.outputs, m, 8 * n, s.outputs), group.space, lane);
        if (mlp_output_activation != MLP_NONE) {
          group.times_slope(mlp_output_activation, to, Group::rounded(outputs[m]));
        }
        Ops::store(to, group.piece(last_slopes, line, m, 8 * n, line), group.space, lane);
      }
    }
    typename Ops::Rows16 rows[kBlocks];
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) Ops::join(rows[m], d[m][0], d[m][1]);
    ROWS_UNROLL
    for (int n = 0; n < Group::kSums; ++n) {
      typename Ops::Right16 right;
      Ops::load(right, packed + mlp_packed_transpose(s, last), uint(n) * (line / 16) + k, lane);
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) Ops::multiply(group.sums[m][n], rows[m], right);
    }
  }

  for (uint layer = last; layer-- > 0;) {
    device const T* const y = values + mlp_values_at(s, params.chunk, layer);
    device T* const slopes = scratch + mlp_slopes_at(s, params.chunk, layer) + long(at) * W;
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) {
      ROWS_UNROLL
      for (int n = 0; n < Group::kSums; ++n) {
        thread typename Ops::Sums16& d = group.sums[m][n];
        typename Ops::Sums16 value;
        Ops::load(value, group.piece(y, W, m, 8 * uint(n), W), group.space, lane);
        group.times_slope(mlp_activation, d, Group::elements(value));
        Ops::store(d, group.piece(slopes, W, m, 8 * uint(n), W), group.space, lane);
      }
    }
    group.join();
    if (layer == 0) break;
    ROWS_UNROLL
    for (int n = 0; n < Group::kSums; ++n) {
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) Ops::clear(group.sums[m][n]);
    }
    group.multiply(packed + mlp_packed_transpose(s, layer));
  }
  if (params.x_gradient == 0) return;
  for (uint n = 0; 8 * n < s.inputs; ++n) {
    typename Ops::Sums16 sums[kBlocks];
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) Ops::clear(sums[m]);
    group.multiply_columns(packed + mlp_packed_transpose(s, 0), n, sums);
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) {
      device T* const to = d_x + row * long(s.inputs);
      Ops::store(sums[m], group.piece(to, s.inputs, m, 8 * n, s.inputs), group.space, lane);
    }
  }
}

// A tile of a layer's gradient, summed over a split of the chunk by one simdgroup.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(32)]] void fused_mlp_groups_weights(
    device const T* x [[buffer(0)]], device const T* scratch [[buffer(1)]],
    device float* parts [[buffer(2)]], constant MlpParams& params [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float space[ROWS16_STAGE];
  using Ops = Rows<T>;
  constexpr int kRows = MLP_TILE_ROWS / 16, kColumns = MLP_TILE_COLUMNS / 8;
  const MlpSizes s = mlp_sizes(params);
  const uint layer = params.layer, line = mlp_slopes_line(s, layer);
  const uint rows = mlp_rows(s, layer), columns = mlp_columns(s, layer);
  const uint first = group.x * MLP_TILE_ROWS, column = group.y * MLP_TILE_COLUMNS;
  const uint begin = group.z * params.split, end = min(begin + params.split, params.rows);
  device const T* const values = layer == 0 ? x + params.first * long(s.inputs)
                                            : scratch + mlp_values_at(s, params.chunk, layer - 1);
  device const T* const slopes = scratch + mlp_slopes_at(s, params.chunk, layer);
  typename Ops::Sums16 sums[kRows][kColumns];
  ROWS_UNROLL
  for (int m = 0; m < kRows; ++m) {
    ROWS_UNROLL
    for (int n = 0; n < kColumns; ++n) Ops::clear(sums[m][n]);
  }
  for (uint row = begin; row < end; row += 16) {
    const int left = int(end - row);
    typename Ops::Rows16 value[kRows];
    ROWS_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const uint from = first + 16 * uint(m);
      const Piece<const T> piece = {values + long(row) * long(rows) + from, long(rows), left,
                                    int(rows) - int(from)};
      Ops::load_transposed(value[m], piece, space, lane);
    }
    ROWS_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      const uint from = column + 8 * uint(n);
      if (from >= columns) break;
      const Piece<const T> piece = {slopes + long(row) * long(line) + from, long(line), left,
                                    int(line) - int(from)};
      typename Ops::Right16 slope;
      Ops::load(slope, piece, space, lane);
      ROWS_UNROLL
      for (int m = 0; m < kRows; ++m) Ops::multiply(sums[m][n], value[m], slope);
    }
  }
  device float* const to = parts + long(group.z) * long(params.n_weights) + mlp_matrix(s, layer);
  ROWS_UNROLL
  for (int m = 0; m < kRows; ++m) {
    ROWS_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      const uint i = first + 16 * uint(m), j = column + 8 * uint(n);
      const Piece<float> piece = {to + long(i) * long(columns) + j, long(columns),
                                  int(rows) - int(i), int(columns) - int(j)};
      Ops::add(sums[m][n], piece, params.adds != 0, space, lane);
    }
  }
}

// The sum of all parts, in an order that is always the same. Grid: weights x simdgroups.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(32 * MLP_SUM_SIMDGROUPS)]] void fused_mlp_group_sum(
    device const float* parts [[buffer(0)]], device T* d_weights [[buffer(1)]],
    constant MlpParams& params [[buffer(2)]], constant uint& n_parts [[buffer(3)]],
    uint2 position [[thread_position_in_grid]], uint2 at [[thread_position_in_threadgroup]]) {
  threadgroup float sums[MLP_SUM_SIMDGROUPS][32];
  const uint weight = position.x;
  float sum = 0.0f;
  if (weight < params.n_weights) {
    for (uint part = at.y; part < n_parts; part += MLP_SUM_SIMDGROUPS) {
      sum += parts[long(part) * long(params.n_weights) + weight];
    }
  }
  sums[at.y][at.x] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at.y != 0 || weight >= params.n_weights) return;
  for (uint i = 1; i < MLP_SUM_SIMDGROUPS; ++i) sum += sums[i][at.x];
  d_weights[weight] = T(sum);
}

#define INSTANTIATE_MLP_WIDTH(name, T, width)                                                    \
  INSTANTIATE_KERNEL("fused_mlp_groups_" name "_" #width, fused_mlp_groups, T, width)            \
  INSTANTIATE_KERNEL("fused_mlp_groups_backward_" name "_" #width, fused_mlp_groups_backward, T, \
                     width)
#define INSTANTIATE_MLP(name, T)                                                    \
  INSTANTIATE_KERNEL("fused_mlp_group_pack_" name, fused_mlp_group_pack, T)         \
  INSTANTIATE_KERNEL("fused_mlp_groups_weights_" name, fused_mlp_groups_weights, T) \
  INSTANTIATE_KERNEL("fused_mlp_group_sum_" name, fused_mlp_group_sum, T)           \
  INSTANTIATE_MLP_WIDTH(name, T, 16)                                                \
  INSTANTIATE_MLP_WIDTH(name, T, 32)                                                \
  INSTANTIATE_MLP_WIDTH(name, T, 64)                                                \
  INSTANTIATE_MLP_WIDTH(name, T, 128)
INSTANTIATE_MLP("float", float)
INSTANTIATE_MLP("half", half)
IF_BFLOAT(INSTANTIATE_MLP("bfloat", bfloat))
