// The shaders of MetalFusedMatMul and MetalFusedConv2D.

#include <metal_stdlib>

#include "kernels/gemm/gemm.metal.h"
#include "kernels/gemm/gemm_cached.metal.h"
#include "kernels/gemm/gemm_tile.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

INSTANTIATE_KERNEL("gemm_pack_float", gemm_pack, float)
INSTANTIATE_KERNEL("gemm_pack_half", gemm_pack, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_pack_bfloat", gemm_pack, bfloat))

INSTANTIATE_KERNEL("gemm_threads_fused_float", gemm_threads_fused, float, GEMM_THREAD_ROWS,
                   GEMM_THREAD_COLUMNS)
INSTANTIATE_KERNEL("gemm_threads_fused_half", gemm_threads_fused, half, GEMM_THREAD_ROWS,
                   GEMM_THREAD_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_threads_fused_bfloat", gemm_threads_fused, bfloat,
                             GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS))

#if defined(__METAL_CPU__)
INSTANTIATE_KERNEL("gemm_cached_fused_float", gemm_cached_fused, float)
INSTANTIATE_KERNEL("gemm_cached_fused_half", gemm_cached_fused, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_cached_fused_bfloat", gemm_cached_fused, bfloat))
INSTANTIATE_KERNEL("gemm_wide_fused_float", gemm_threads_fused, float, GEMM_WIDE_ROWS,
                   GEMM_WIDE_COLUMNS)
INSTANTIATE_KERNEL("gemm_wide_fused_half", gemm_threads_fused, half, GEMM_WIDE_ROWS,
                   GEMM_WIDE_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_wide_fused_bfloat", gemm_threads_fused, bfloat, GEMM_WIDE_ROWS,
                             GEMM_WIDE_COLUMNS))
INSTANTIATE_KERNEL("gemm_middle_fused_float", gemm_threads_fused, float, GEMM_MIDDLE_ROWS,
                   GEMM_MIDDLE_COLUMNS)
INSTANTIATE_KERNEL("gemm_middle_fused_half", gemm_threads_fused, half, GEMM_MIDDLE_ROWS,
                   GEMM_MIDDLE_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_middle_fused_bfloat", gemm_threads_fused, bfloat,
                             GEMM_MIDDLE_ROWS, GEMM_MIDDLE_COLUMNS))
#endif

INSTANTIATE_KERNEL("gemm_tiles_fused_float", gemm_tiles_fused, float)
INSTANTIATE_KERNEL("gemm_tiles_fused_half", gemm_tiles_fused, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_tiles_fused_bfloat", gemm_tiles_fused, bfloat))
