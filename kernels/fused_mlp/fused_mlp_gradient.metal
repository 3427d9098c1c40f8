// FusedMlpGrad of small networks without biases in one piece: values and gradients of a batch's rows
// stay in registers, simdgroups hand each other both through threadgroup memory, and each sums a few
// tiles of the weights' gradient over all rows that its threadgroup has.

#include <metal_stdlib>

#include "kernels/fused_mlp/fused_mlp_group.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// As constants they leave neither branches nor registers for parts that a network does not have.
constant uint mlp_inputs [[function_constant(2)]];
constant uint mlp_outputs [[function_constant(3)]];
constant uint mlp_n_layers [[function_constant(4)]];

constexpr constant uint kSimdgroups = MLP_GRADIENT_SIMDGROUPS;
constexpr constant int kMostLayers = MLP_GRADIENT_HIDDEN + 1;

// A simdgroup's tile of a matrix's gradient, in blocks of 16 rows and columns, and the simdgroups
// whose rows of the batch it sums, from the first on with a stride: where there are fewer tiles than
// simdgroups, several share one.
struct MlpTile {
  uint row, column, first, stride, n;
};
inline MlpTile mlp_tile(uint rows, uint columns, uint blocks_across, uint simdgroup) {
  const uint down = mlp_padded(rows) / 16;
  const uint across = (mlp_padded(columns) / 16 + blocks_across - 1) / blocks_across;
  const uint tile = simdgroup % (down * across), stride = kSimdgroups / (down * across);
  const uint first = simdgroup / (down * across);
  const uint n = first < stride ? (kSimdgroups - first + stride - 1) / stride : 0;
  return {tile % down, tile / down * blocks_across, first, stride, n};
}

template <typename T, int W>
struct MlpGradient {
  using Ops = Rows<T>;
  using Group = MlpGroup<T, W, 1, false>;
  static constexpr constant int kLeft = Group::kLeft, kSums = Group::kSums;
  static constexpr constant int kAcross = kLeft < 2 ? kLeft : 2;
  // A simdgroup's part of threadgroup memory: values, then gradients.
  static constexpr constant int kSpace = 2 * kLeft * ROWS16_BLOCK;

  Group group;
  threadgroup T* space;  // of all simdgroups
  uint simdgroup;
  typename Ops::Rows16 values[MLP_GRADIENT_HIDDEN][kLeft];
  typename Ops::Sums16 sums[kMostLayers][2 * kAcross];

  ROWS_INLINE MlpTile tile(int layer) thread const {
    return mlp_tile(mlp_rows(group.s, uint(layer)), mlp_columns(group.s, uint(layer)), kAcross,
                    simdgroup);
  }

  ROWS_INLINE void keep(int layer) thread {
    ROWS_UNROLL
    for (int k = 0; k < kLeft; ++k) values[layer][k] = group.left[0][k];
  }

  // group.left = the gradient of the last layer's sums.
  ROWS_INLINE void outputs_gradient(device const T* d_outputs) thread {
    const uint columns = group.s.outputs;
    typename Ops::Rows16 d[kLeft];
    ROWS_UNROLL
    for (int k = 0; k < kLeft; ++k) {
      Ops::clear(d[k]);
      if (16 * uint(k) >= columns) continue;
      Ops::load(d[k], group.piece(d_outputs, columns, 0, 16 * uint(k), columns), group.space,
                group.lane);
      if (mlp_output_activation == MLP_NONE) continue;
      typename Ops::Sums16 slopes[2], outputs[2][1];
      Ops::separate(d[k], slopes[0], slopes[1]);
      ROWS_UNROLL
      for (int half_ = 0; half_ < 2; ++half_) {
        group.output_columns(uint(2 * k + half_), outputs[half_]);
        group.times_slope(mlp_output_activation, slopes[half_], Group::rounded(outputs[half_][0]));
      }
      Ops::join(d[k], slopes[0], slopes[1]);
    }
    ROWS_UNROLL
    for (int k = 0; k < kLeft; ++k) group.left[0][k] = d[k];
  }

  // Adds to the gradient of a layer's matrix: all simdgroups' values, transposed, times their
  // gradients. Waits until they are there, and until all simdgroups have read them.
  ROWS_INLINE void add(int layer) thread {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const MlpTile t = tile(layer);
    threadgroup const T* from = space + t.first * uint(kSpace);
    for (uint i = 0; i < t.n; ++i, from += t.stride * uint(kSpace)) {
      typename Ops::Rows16 left;
      Ops::get_transposed(left, from + t.row * ROWS16_BLOCK, group.lane);
      ROWS_UNROLL
      for (int j = 0; j < kAcross; ++j) {
        typename Ops::Right16 right[2];
        Ops::get(right, from + (uint(kLeft + j) + t.column) * ROWS16_BLOCK, group.lane);
        Ops::multiply(sums[layer][2 * j], left, right[0]);
        Ops::multiply(sums[layer][2 * j + 1], left, right[1]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  // group.left = the gradient of a hidden layer's sums, from that of the next layer's.
  ROWS_INLINE void layer_gradient(int layer) thread {
    ROWS_UNROLL
    for (int n = 0; n < kSums; ++n) Ops::clear(group.sums[0][n]);
    const uint next = uint(layer) + 1, blocks = mlp_slopes_line(group.s, next) / 16;
    device const T* const matrix = group.packed + mlp_packed_transpose(group.s, next);
    ROWS_UNROLL
    for (int k = 0; k < kLeft; ++k) {
      if (uint(k) >= blocks) continue;
      ROWS_UNROLL
      for (int n = 0; n < kSums; ++n) {
        typename Ops::Right16 right;
        Ops::load(right, matrix, uint(n) * blocks + uint(k), group.lane);
        Ops::multiply(group.sums[0][n], group.left[0][k], right);
      }
    }
    ROWS_UNROLL
    for (int k = 0; k < kLeft; ++k) {
      typename Ops::Sums16 value[2];
      Ops::separate(values[layer][k], value[0], value[1]);
      ROWS_UNROLL
      for (int half_ = 0; half_ < 2; ++half_) {
        group.times_slope(mlp_activation, group.sums[0][2 * k + half_],
                          Group::elements(value[half_]));
      }
    }
    group.join();
  }

  ROWS_INLINE void put(thread const typename Ops::Rows16& rows, int block) thread const {
    Ops::put(rows, group.rows, space + simdgroup * uint(kSpace) + block * ROWS16_BLOCK, group.lane);
  }

  // All of 16 rows.
  ROWS_INLINE void run(device const T* x, device const T* d_outputs, device T* d_x,
                       bool with_x) thread {
    const int n_layers = int(group.s.n_layers);
    const uint inputs = group.s.inputs;
    group.first_layer(x);
    group.end_layer(nullptr);
    keep(0);
    ROWS_UNROLL
    for (int layer = 1; layer < MLP_GRADIENT_HIDDEN; ++layer) {
      if (layer + 1 >= n_layers) continue;
      group.hidden_layer(uint(layer));
      group.end_layer(nullptr);
      keep(layer);
    }
    outputs_gradient(d_outputs);
    ROWS_UNROLL
    for (int back = 0; back < kMostLayers; ++back) {
      const int layer = kMostLayers - 1 - back;
      if (layer >= n_layers) continue;
      if (layer + 1 < n_layers) layer_gradient(layer);
      if (layer == 0) {
        // All before the first is handed over, as edges pass through the same memory.
        ROWS_UNROLL
        for (int k = 0; k < kLeft; ++k) {
          if (16 * uint(k) >= inputs) continue;
          Ops::load(values[0][k], group.piece(x, inputs, 0, 16 * uint(k), inputs), group.space,
                    group.lane);
        }
      }
      ROWS_UNROLL
      for (int k = 0; k < kLeft; ++k) {
        put(values[layer > 0 ? layer - 1 : 0][k], k);
        put(group.left[0][k], kLeft + k);
      }
      add(layer);
    }
    if (!with_x) return;
    for (uint n = 0; 8 * n < inputs; ++n) {
      typename Ops::Sums16 d[1];
      Ops::clear(d[0]);
      group.multiply_columns(group.packed + mlp_packed_transpose(group.s, 0), n, d);
      Ops::store(d[0], group.piece(d_x, inputs, 0, 8 * n, inputs), group.space, group.lane);
    }
  }
};

// Gradients of a chunk. `parts` gets the weights' gradient summed over the rows of each threadgroup.
template <typename T, int W>
[[kernel, max_total_threads_per_threadgroup(32 * MLP_GRADIENT_SIMDGROUPS)]] void fused_mlp_gradient(
    device const T* d_outputs [[buffer(0)]], device const T* x [[buffer(1)]],
    device const T* packed [[buffer(2)]], device float* parts [[buffer(3)]],
    device T* d_x [[buffer(4)]], constant MlpParams& params [[buffer(5)]],
    uint group [[threadgroup_position_in_grid]], uint n_groups [[threadgroups_per_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Ops = Rows<T>;
  using Gradient = MlpGradient<T, W>;
  threadgroup T space[MLP_GRADIENT_SIMDGROUPS * Gradient::kSpace];
  Gradient g;
  g.space = space;
  g.simdgroup = simdgroup;
  g.group.packed = packed;
  g.group.biases = nullptr;
  // Pieces at an edge and the values handed over share the memory in turns.
  g.group.space = (threadgroup float*)(space + simdgroup * uint(Gradient::kSpace));
  g.group.lane = lane;
  g.group.s = {mlp_inputs, W, mlp_outputs, mlp_n_layers, 0};
  g.group.shape = mlp_shape(params);
  ROWS_UNROLL
  for (int layer = 0; layer < kMostLayers; ++layer) {
    ROWS_UNROLL
    for (int n = 0; n < 2 * Gradient::kAcross; ++n) Ops::clear(g.sums[layer][n]);
  }
  const MlpSizes s = g.group.s;
  for (uint at = group * MLP_GRADIENT_ROWS; at < params.rows; at += n_groups * MLP_GRADIENT_ROWS) {
    const uint mine = at + 16 * simdgroup;
    const long row = params.first + long(mine);
    g.group.rows = int(params.rows) - int(mine);
    g.run(x + row * long(s.inputs), d_outputs + row * long(s.outputs), d_x + row * long(s.inputs),
          params.x_gradient != 0);
  }
  device float* const to = parts + long(group) * long(params.n_weights);
  // Simdgroups that share a tile add to it one after the other.
  for (uint turn = 0; turn < kSimdgroups; ++turn) {
    ROWS_UNROLL
    for (int layer = 0; layer < kMostLayers; ++layer) {
      if (layer >= int(s.n_layers)) continue;
      const MlpTile tile = g.tile(layer);
      if (tile.n == 0 || tile.first != turn) continue;
      const int rows = int(mlp_rows(s, uint(layer))) - 16 * int(tile.row);
      const int columns = int(mlp_columns(s, uint(layer)));
      ROWS_UNROLL
      for (int n = 0; n < 2 * Gradient::kAcross; ++n) {
        const int column = 16 * int(tile.column) + 8 * n;
        const Piece<float> piece = {
            to + mlp_matrix(s, uint(layer)) + 16 * tile.row * uint(columns) + column, columns, rows,
            columns - column};
        Ops::add(g.sums[layer][n], piece, params.adds != 0 || turn > 0, g.group.space, lane);
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}

#define INSTANTIATE_MLP(name, T)                                                  \
  INSTANTIATE_KERNEL("fused_mlp_gradient_" name "_16", fused_mlp_gradient, T, 16) \
  INSTANTIATE_KERNEL("fused_mlp_gradient_" name "_32", fused_mlp_gradient, T, 32) \
  INSTANTIATE_KERNEL("fused_mlp_gradient_" name "_64", fused_mlp_gradient, T, 64)
INSTANTIATE_MLP("half", half)
IF_BFLOAT(INSTANTIATE_MLP("bfloat", bfloat))
