// The kernels of products in blocks, plain ones and convolutions, where threadgroups' threads really run
// at once. Convolutions are of images whose channels are neighbours and a multiple of 16 bytes; their
// filter is b, not turned.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_BLOCK_KERNELS_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_BLOCK_KERNELS_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/gemm_blocks.metal.h"
#include "kernels/gemm/gemm_floats.metal.h"

using namespace metal;

// By the matrix unit, or, of float32, by threads.
template <typename T>
struct GemmBlockOf {
  template <int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles, int kStages,
            int kShares>
  using Sized = GemmBlock<T, kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages, kShares>;
};
template <>
struct GemmBlockOf<float> {
  template <int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles, int kStages,
            int kShares>
  using Sized = GemmFloats<kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages, kShares>;
};

template <bool kConv, typename T, int kRows, int kColumns, int kDepth, int kRowTiles,
          int kColumnTiles, int kStages, int kShares>
[[kernel, max_total_threads_per_threadgroup(kRows* kColumns* kShares /
                                            (kRowTiles * kColumnTiles * 4))]] void
gemm_blocks(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
            device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
            device const T* gamma [[buffer(4)]], device const T* beta [[buffer(5)]],
            device const T* mean [[buffer(6)]], device const T* variance [[buffer(7)]],
            device const T* residual [[buffer(8)]], constant EpilogueParams& epilogue [[buffer(9)]],
            threadgroup T* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
            uint thread_ [[thread_index_in_threadgroup]],
            uint simdgroup [[simdgroup_index_in_threadgroup]],
            uint lane [[thread_index_in_simdgroup]]) {
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  GemmBlockOf<T>::template Sized<kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages,
                                 kShares>::template run<kConv>(a, b, out, params, fused, memory,
                                                               group, thread_, simdgroup, lane);
}

// Parts of long sums, a product each: the terms of gemm_sum_parts.
template <bool kConv, typename T, int kRows, int kColumns, int kDepth, int kRowTiles,
          int kColumnTiles, int kStages, int kShares>
[[kernel, max_total_threads_per_threadgroup(kRows* kColumns* kShares /
                                            (kRowTiles * kColumnTiles * 4))]] void
gemm_blocks_parts(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                  device float* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
                  threadgroup T* memory [[threadgroup(0)]],
                  uint3 group [[threadgroup_position_in_grid]],
                  uint thread_ [[thread_index_in_threadgroup]],
                  uint simdgroup [[simdgroup_index_in_threadgroup]],
                  uint lane [[thread_index_in_simdgroup]]) {
  GemmBlockOf<T>::template Sized<kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages,
                                 kShares>::template run<kConv>(a, b, out, params, NoEpilogue(),
                                                               memory, group, thread_, simdgroup,
                                                               lane);
}

// Written once in a library that has these shaders.
#define GEMM_BLOCK_KERNEL(kind, conv, size, T, ...) \
  INSTANTIATE_KERNEL("gemm_" #kind "_" #size "_" #T, gemm_blocks, conv, T, __VA_ARGS__)
#define GEMM_BLOCKS_KERNELS_WITH(T)                              \
  GEMM_BLOCK_KERNEL(blocks, false, large, T, GEMM_LARGE_BLOCK)   \
  GEMM_BLOCK_KERNEL(blocks, false, middle, T, GEMM_MIDDLE_BLOCK) \
  GEMM_BLOCK_KERNEL(blocks, false, low, T, GEMM_LOW_BLOCK)       \
  GEMM_BLOCK_KERNEL(blocks, false, thin, T, GEMM_THIN_BLOCK)     \
  GEMM_BLOCK_KERNEL(blocks, false, small, T, GEMM_SMALL_BLOCK)   \
  GEMM_BLOCK_KERNEL(blocks, false, short, T, GEMM_SHORT_BLOCK)
#define GEMM_BLOCKS_KERNELS                                         \
  GEMM_BLOCKS_KERNELS_WITH(half)                                    \
  IF_BFLOAT(GEMM_BLOCKS_KERNELS_WITH(bfloat))                       \
  GEMM_BLOCK_KERNEL(blocks, false, large, float, GEMM_LARGE_FLOATS) \
  GEMM_BLOCK_KERNEL(blocks, false, small, float, GEMM_SMALL_FLOATS)
#define GEMM_CONV_KERNELS_WITH(T)                             \
  GEMM_BLOCK_KERNEL(conv, true, middle, T, GEMM_MIDDLE_BLOCK) \
  GEMM_BLOCK_KERNEL(conv, true, small, T, GEMM_SMALL_BLOCK)
#define GEMM_CONV_KERNELS                                        \
  GEMM_CONV_KERNELS_WITH(half)                                   \
  IF_BFLOAT(GEMM_CONV_KERNELS_WITH(bfloat))                      \
  GEMM_BLOCK_KERNEL(conv, true, large, float, GEMM_LARGE_FLOATS) \
  GEMM_BLOCK_KERNEL(conv, true, small, float, GEMM_SMALL_FLOATS)
#define GEMM_PARTS_KERNEL(kind, conv, T, ...) \
  INSTANTIATE_KERNEL("gemm_" #kind "_parts_" #T, gemm_blocks_parts, conv, T, __VA_ARGS__)
#define GEMM_PARTS_KERNELS(kind, conv)                               \
  GEMM_PARTS_KERNEL(kind, conv, half, GEMM_SMALL_BLOCK)              \
  IF_BFLOAT(GEMM_PARTS_KERNEL(kind, conv, bfloat, GEMM_SMALL_BLOCK)) \
  GEMM_PARTS_KERNEL(kind, conv, float, GEMM_SMALL_FLOATS)

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_BLOCK_KERNELS_METAL_H_
