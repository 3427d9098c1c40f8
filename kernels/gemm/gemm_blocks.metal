// Products in blocks by simdgroups.

#include <metal_stdlib>

#include "kernels/gemm/gemm_block_kernels.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_BLOCKS_KERNELS
