// Convolutions as products in blocks, where threadgroups' threads really run at once: of images whose
// channels are neighbours and a multiple of 16 bytes. The filter is b, not turned.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_CONV_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_CONV_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/gemm_blocks.metal.h"
#include "kernels/gemm/gemm_floats.metal.h"

using namespace metal;

// By the matrix unit, or, of float32, by threads.
template <typename T>
struct GemmConvBlock {
  template <int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles, int kStages,
            int kShares>
  using Of = GemmBlock<T, kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages, kShares>;
};
template <>
struct GemmConvBlock<float> {
  template <int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles, int kStages,
            int kShares>
  using Of = GemmFloats<kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages, kShares>;
};

template <typename T, int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles,
          int kStages, int kShares>
[[kernel, max_total_threads_per_threadgroup(kRows* kColumns* kShares /
                                            (kRowTiles * kColumnTiles * 4))]] void
gemm_conv(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
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
  GemmConvBlock<T>::template Of<kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages,
                                kShares>::template run<true>(a, b, out, params, fused, memory,
                                                             group, thread_, simdgroup, lane);
}

// Parts of long sums, a product each: what gemm_sum_parts adds.
template <typename T, int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles,
          int kStages, int kShares>
[[kernel, max_total_threads_per_threadgroup(kRows* kColumns* kShares /
                                            (kRowTiles * kColumnTiles * 4))]] void
gemm_conv_parts(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                device float* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
                threadgroup T* memory [[threadgroup(0)]],
                uint3 group [[threadgroup_position_in_grid]],
                uint thread_ [[thread_index_in_threadgroup]],
                uint simdgroup [[simdgroup_index_in_threadgroup]],
                uint lane [[thread_index_in_simdgroup]]) {
  GemmConvBlock<T>::template Of<kRows, kColumns, kDepth, kRowTiles, kColumnTiles, kStages,
                                kShares>::template run<true>(a, b, out, params, NoEpilogue(),
                                                             memory, group, thread_, simdgroup,
                                                             lane);
}

// What a library that has these shaders says once.
#define GEMM_CONV_KERNELS_WITH(T)                                             \
  INSTANTIATE_KERNEL("gemm_conv_middle_" #T, gemm_conv, T, GEMM_MIDDLE_BLOCK) \
  INSTANTIATE_KERNEL("gemm_conv_small_" #T, gemm_conv, T, GEMM_SMALL_BLOCK)
#define GEMM_CONV_KERNELS                                                          \
  GEMM_CONV_KERNELS_WITH(half)                                                     \
  GEMM_CONV_KERNELS_WITH(bfloat)                                                   \
  INSTANTIATE_KERNEL("gemm_conv_large_float", gemm_conv, float, GEMM_LARGE_FLOATS) \
  INSTANTIATE_KERNEL("gemm_conv_small_float", gemm_conv, float, GEMM_SMALL_FLOATS)
#define GEMM_CONV_PARTS_KERNELS                                                           \
  INSTANTIATE_KERNEL("gemm_conv_parts_half", gemm_conv_parts, half, GEMM_SMALL_BLOCK)     \
  INSTANTIATE_KERNEL("gemm_conv_parts_bfloat", gemm_conv_parts, bfloat, GEMM_SMALL_BLOCK) \
  INSTANTIATE_KERNEL("gemm_conv_parts_float", gemm_conv_parts, float, GEMM_SMALL_FLOATS)

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_CONV_METAL_H_
