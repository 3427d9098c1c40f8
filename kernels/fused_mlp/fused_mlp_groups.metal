// FusedMlp and FusedMlpGrad where the threads of a simdgroup really run at once: each simdgroup has
// a few rows of the batch, whose values stay in its registers as operands of the matrix unit.

#include <metal_stdlib>

#include "kernels/fused_mlp/fused_mlp_activation.h"
#include "kernels/gemm/simdgroup_rows.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#define MLP_GROUP_THREADS 128
constexpr constant uint kSimdgroups = MLP_GROUP_THREADS / 32;

// Weights as right operands, 16x8 each, those of 8 columns side by side; padded with zeros. One
// thread an element; z counts layers, then transposes.
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

// One simdgroup's part of a network of width W: kBlocks times 16 rows.
template <typename T, int W, int kBlocks>
struct MlpGroup {
  using Ops = Rows<T>;
  using Rows16 = typename Ops::Rows16;
  using Right16 = typename Ops::Right16;
  using Sums16 = typename Ops::Sums16;
  // Blocks of 16 columns as a left operand, of 8 as sums.
  static constexpr constant int kLeft = W / 16, kSums = W / 8;

  device const T* packed;
  device const float* biases;
  threadgroup float* space;
  uint lane;
  int rows;  // of the batch that are left
  MlpSizes s;
  float squareplus_b;

  Rows16 left[kBlocks][kLeft];
  Sums16 sums[kBlocks][kSums];

  template <typename S>
  ROWS_INLINE Piece<S> piece(device S* from, long line, int block, uint column,
                             uint columns) thread const {
    return {from + 16 * block * line + column, line, rows - 16 * block, int(columns - column)};
  }

  // sums = bias + x W_0.
  ROWS_INLINE void first_layer(device const T* x) thread {
    ROWS_UNROLL
    for (int n = 0; n < kSums; ++n) {
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) Ops::fill(sums[m][n], biases + 8 * n, lane);
    }
    const uint blocks = mlp_padded(s.inputs) / 16;
    for (uint k = 0; k < blocks; ++k) {
      Rows16 rows16[kBlocks];
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) {
        Ops::load(rows16[m], piece(x, s.inputs, m, 16 * k, s.inputs), space, lane);
      }
      ROWS_UNROLL
      for (int n = 0; n < kSums; ++n) {
        Right16 right;
        Ops::load(right, packed, uint(n) * blocks + k, lane);
        ROWS_UNROLL
        for (int m = 0; m < kBlocks; ++m) Ops::multiply(sums[m][n], rows16[m], right);
      }
    }
  }
  // sums += left times W x W matrices.
  ROWS_INLINE void multiply(device const T* matrix) thread {
    ROWS_UNROLL
    for (int n = 0; n < kSums; ++n) {
      ROWS_UNROLL
      for (int k = 0; k < kLeft; ++k) {
        Right16 right;
        Ops::load(right, matrix, uint(n * kLeft + k), lane);
        ROWS_UNROLL
        for (int m = 0; m < kBlocks; ++m) Ops::multiply(sums[m][n], left[m][k], right);
      }
    }
  }
  // 8 columns of left times a matrix of W rows.
  ROWS_INLINE void multiply_columns(device const T* matrix, uint n,
                                    thread Sums16 (&to)[kBlocks]) thread {
    ROWS_UNROLL
    for (int k = 0; k < kLeft; ++k) {
      Right16 right;
      Ops::load(right, matrix, n * kLeft + uint(k), lane);
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) Ops::multiply(to[m], left[m][k], right);
    }
  }
  ROWS_INLINE void activate(uint activation, thread Sums16& of) thread {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      Ops::set(of, i, mlp_activated(activation, squareplus_b, Ops::element(of, i)));
    }
  }
  ROWS_INLINE void join() thread {
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) {
      ROWS_UNROLL
      for (int k = 0; k < kLeft; ++k) Ops::join(left[m][k], sums[m][2 * k], sums[m][2 * k + 1]);
    }
  }
  // left = the values of a hidden layer, from its sums. They are kept, if `values` is not null.
  ROWS_INLINE void end_layer(device T* values) thread {
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) {
      ROWS_UNROLL
      for (int n = 0; n < kSums; ++n) {
        activate(mlp_activation, sums[m][n]);
        if (values != nullptr) {
          Ops::store(sums[m][n], piece(values, W, m, 8 * uint(n), W), space, lane);
        }
      }
    }
    join();
  }
  ROWS_INLINE void hidden_layer(uint layer) thread {
    ROWS_UNROLL
    for (int n = 0; n < kSums; ++n) {
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) {
        Ops::fill(sums[m][n], biases + layer * MLP_MOST_COLUMNS + 8 * uint(n), lane);
      }
    }
    multiply(packed + mlp_packed(s, layer));
  }
  // 8 columns of the outputs.
  ROWS_INLINE void output_columns(uint n, thread Sums16 (&outputs)[kBlocks]) thread {
    const uint layer = s.n_layers - 1;
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) {
      Ops::fill(outputs[m], biases + layer * MLP_MOST_COLUMNS + 8 * n, lane);
    }
    multiply_columns(packed + mlp_packed(s, layer), n, outputs);
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) activate(mlp_output_activation, outputs[m]);
  }
};

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
  group.squareplus_b = params.squareplus_b;
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
  group.squareplus_b = params.squareplus_b;
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
          ROWS_UNROLL
          for (int i = 0; i < 4; ++i) {
            const float y = float(T(Ops::element(outputs[m], i)));
            Ops::set(to, i,
                     mlp_times_slope(mlp_output_activation, params.squareplus_b,
                                     Ops::element(to, i), y));
          }
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
        ROWS_UNROLL
        for (int i = 0; i < 4; ++i) {
          Ops::set(d, i,
                   mlp_times_slope(mlp_activation, params.squareplus_b, Ops::element(d, i),
                                   Ops::element(value, i)));
        }
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

#define INSTANTIATE_MLP_WIDTH(name, T, width)                                                    \
  INSTANTIATE_KERNEL("fused_mlp_groups_" name "_" #width, fused_mlp_groups, T, width)            \
  INSTANTIATE_KERNEL("fused_mlp_groups_backward_" name "_" #width, fused_mlp_groups_backward, T, \
                     width)
#define INSTANTIATE_MLP(name, T)                                                    \
  INSTANTIATE_KERNEL("fused_mlp_group_pack_" name, fused_mlp_group_pack, T)         \
  INSTANTIATE_KERNEL("fused_mlp_groups_weights_" name, fused_mlp_groups_weights, T) \
  INSTANTIATE_MLP_WIDTH(name, T, 16)                                                \
  INSTANTIATE_MLP_WIDTH(name, T, 32)                                                \
  INSTANTIATE_MLP_WIDTH(name, T, 64)                                                \
  INSTANTIATE_MLP_WIDTH(name, T, 128)
INSTANTIATE_MLP("float", float)
INSTANTIATE_MLP("half", half)
INSTANTIATE_MLP("bfloat", bfloat)
