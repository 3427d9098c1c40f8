// Products and convolutions that nothing is fused to: the fused ops' shaders without their
// epilogue; and products of long sums, in parts.

#include <metal_stdlib>

#include "kernels/gemm/gemm.metal.h"
#include "kernels/gemm/gemm_tile.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

INSTANTIATE_KERNEL("gemm_pack_float", gemm_pack, float)
INSTANTIATE_KERNEL("gemm_pack_half", gemm_pack, half)
INSTANTIATE_KERNEL("gemm_pack_bfloat", gemm_pack, bfloat)

INSTANTIATE_KERNEL("gemm_threads_float", gemm_threads, float, GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS)
INSTANTIATE_KERNEL("gemm_threads_half", gemm_threads, half, GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS)
INSTANTIATE_KERNEL("gemm_threads_bfloat", gemm_threads, bfloat, GEMM_THREAD_ROWS,
                   GEMM_THREAD_COLUMNS)

INSTANTIATE_KERNEL("gemm_wide_float", gemm_threads, float, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)
INSTANTIATE_KERNEL("gemm_wide_half", gemm_threads, half, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)
INSTANTIATE_KERNEL("gemm_wide_bfloat", gemm_threads, bfloat, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)

INSTANTIATE_KERNEL("gemm_tiles_float", gemm_tiles, float)
INSTANTIATE_KERNEL("gemm_tiles_half", gemm_tiles, half)
INSTANTIATE_KERNEL("gemm_tiles_bfloat", gemm_tiles, bfloat)

// Parts of long sums, a product each: what gemm_sum_parts adds.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(GEMM_TILE_THREADS)]] void gemm_tiles_parts(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
    device float* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T a_tile[GEMM_TILE_ROWS * GEMM_TILE_A_LINE];
  threadgroup T b_tile[GEMM_TILE_DEPTH * GEMM_TILE_B_LINE];
  threadgroup float sum_tiles[4 * GEMM_TILE_SUMS];
  gemm_group_tile(a, b, out, params, NoEpilogue(), a_tile, b_tile, sum_tiles, group, thread_,
                  simdgroup, lane);
}

// Grid: the elements of the product.
template <typename T>
[[kernel]] void gemm_sum_parts(device const float* parts [[buffer(0)]], device T* out [[buffer(1)]],
                               constant GemmParams& params [[buffer(2)]],
                               uint i [[thread_position_in_grid]]) {
  float sum = 0.0f;
  for (uint part = 0; part < params.batch[0]; ++part) {
    sum += parts[long(part) * params.out_batch + long(i)];
  }
  out[i] = T(sum);
}

INSTANTIATE_KERNEL("gemm_tiles_parts_float", gemm_tiles_parts, float)
INSTANTIATE_KERNEL("gemm_tiles_parts_half", gemm_tiles_parts, half)
INSTANTIATE_KERNEL("gemm_tiles_parts_bfloat", gemm_tiles_parts, bfloat)

INSTANTIATE_KERNEL("gemm_sum_parts_float", gemm_sum_parts, float)
INSTANTIATE_KERNEL("gemm_sum_parts_half", gemm_sum_parts, half)
INSTANTIATE_KERNEL("gemm_sum_parts_bfloat", gemm_sum_parts, bfloat)
