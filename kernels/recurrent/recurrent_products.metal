// The products of RecurrentSequence's steps: kernels/gemm's shaders, to which nothing is fused.

#include <metal_stdlib>

#include "kernels/gemm/gemm.metal.h"
#include "kernels/gemm/gemm_cached.metal.h"
#include "kernels/gemm/gemm_tile.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

INSTANTIATE_KERNEL("gemm_threads_float", gemm_threads, float, GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS)
#if defined(__METAL_CPU__)
INSTANTIATE_KERNEL("gemm_cached_float", gemm_cached, float)
INSTANTIATE_KERNEL("gemm_wide_float", gemm_threads, float, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)
INSTANTIATE_KERNEL("gemm_middle_float", gemm_threads, float, GEMM_MIDDLE_ROWS, GEMM_MIDDLE_COLUMNS)
#endif
INSTANTIATE_KERNEL("gemm_tiles_float", gemm_tiles, float)
