// One simdgroup's part of a small network in shaders, from which fused_mlp_groups.metal and
// fused_mlp_gradient.metal are made.

#ifndef METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_GROUP_METAL_H_
#define METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_GROUP_METAL_H_

#include <metal_stdlib>

#include "kernels/fused_mlp/fused_mlp_activation.h"
#include "kernels/gemm/simdgroup_rows.metal.h"

// One simdgroup's part of a network of width W: kBlocks times 16 rows. Biases are looked at if there
// may be any.
template <typename T, int W, int kBlocks, bool kBiases = true>
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
  MlpShape shape;

  Rows16 left[kBlocks][kLeft];
  Sums16 sums[kBlocks][kSums];

  template <typename S>
  ROWS_INLINE Piece<S> piece(device S* from, long line, int block, uint column,
                             uint columns) thread const {
    return {from + 16 * block * line + column, line, rows - 16 * block, int(columns - column)};
  }

  // sums = 8 of a layer's biases.
  ROWS_INLINE void begin(thread Sums16& of, uint layer, uint n) thread const {
    if (kBiases) {
      Ops::fill(of, biases + layer * MLP_MOST_COLUMNS + 8 * n, lane);
    } else {
      Ops::clear(of);
    }
  }
  // sums = bias + x W_0.
  ROWS_INLINE void first_layer(device const T* x) thread {
    ROWS_UNROLL
    for (int n = 0; n < kSums; ++n) {
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) begin(sums[m][n], 0, uint(n));
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
    for (int i = 0; i < kSums * kLeft; ++i) {
      // With few rows, products that do not wait for each other are neighbours.
      const int n = kBlocks == 1 ? i % kSums : i / kLeft, k = kBlocks == 1 ? i / kSums : i % kLeft;
      Right16 right;
      Ops::load(right, matrix, uint(n * kLeft + k), lane);
      ROWS_UNROLL
      for (int m = 0; m < kBlocks; ++m) Ops::multiply(sums[m][n], left[m][k], right);
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
  ROWS_INLINE static float4 elements(thread const Sums16& of) {
    return float4(Ops::element(of, 0), Ops::element(of, 1), Ops::element(of, 2),
                  Ops::element(of, 3));
  }
  ROWS_INLINE static void set(thread Sums16& of, float4 values) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) Ops::set(of, i, values[i]);
  }
  ROWS_INLINE static float4 rounded(thread const Sums16& of) {
    return float4(metal::vec<T, 4>(elements(of)));
  }
  // d times the slope of an activation whose value is y.
  ROWS_INLINE void times_slope(uint activation, thread Sums16& of, float4 y) thread const {
    if (activation == MLP_NONE) return;
    const float4 d = elements(of);
    set(of, activation == MLP_RELU ? float4(mlp_times_slope(MLP_RELU, shape, d.x, y.x),
                                            mlp_times_slope(MLP_RELU, shape, d.y, y.y),
                                            mlp_times_slope(MLP_RELU, shape, d.z, y.z),
                                            mlp_times_slope(MLP_RELU, shape, d.w, y.w))
                                   : mlp_times_slope_4(activation, shape, d, y));
  }
  ROWS_INLINE void activate(uint activation, thread Sums16& of) thread {
    if (activation == MLP_NONE) return;
    const float4 x = elements(of);
    set(of, activation == MLP_RELU
                ? float4(mlp_activated(MLP_RELU, shape, x.x), mlp_activated(MLP_RELU, shape, x.y),
                         mlp_activated(MLP_RELU, shape, x.z), mlp_activated(MLP_RELU, shape, x.w))
                : mlp_activated_4(activation, shape, x));
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
      for (int m = 0; m < kBlocks; ++m) begin(sums[m][n], layer, uint(n));
    }
    multiply(packed + mlp_packed(s, layer));
  }
  // 8 columns of the outputs.
  ROWS_INLINE void output_columns(uint n, thread Sums16 (&outputs)[kBlocks]) thread {
    const uint layer = s.n_layers - 1;
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) begin(outputs[m], layer, n);
    multiply_columns(packed + mlp_packed(s, layer), n, outputs);
    ROWS_UNROLL
    for (int m = 0; m < kBlocks; ++m) activate(mlp_output_activation, outputs[m]);
  }
};

#endif  // METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_GROUP_METAL_H_
