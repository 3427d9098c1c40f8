// Products and convolutions that nothing is fused to: the fused ops' shaders without their
// epilogue.

#include <metal_stdlib>

#include "kernels/msl/gemm.h"
#include "kernels/msl/gemm_tile.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

INSTANTIATE_KERNEL("gemm_pack_float", gemm_pack, float)
INSTANTIATE_KERNEL("gemm_pack_half", gemm_pack, half)
INSTANTIATE_KERNEL("gemm_pack_bfloat", gemm_pack, bfloat)

INSTANTIATE_KERNEL("gemm_threads_float", gemm_threads, float)
INSTANTIATE_KERNEL("gemm_threads_half", gemm_threads, half)
INSTANTIATE_KERNEL("gemm_threads_bfloat", gemm_threads, bfloat)

INSTANTIATE_KERNEL("gemm_tiles_float", gemm_tiles, float)
INSTANTIATE_KERNEL("gemm_tiles_half", gemm_tiles, half)
INSTANTIATE_KERNEL("gemm_tiles_bfloat", gemm_tiles, bfloat)
