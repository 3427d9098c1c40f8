// Products in blocks by simdgroups, as the fused ops have them, and parts of long sums.

#include <metal_stdlib>

#include "kernels/gemm/gemm_block_kernels.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_BLOCKS_KERNELS
GEMM_PARTS_KERNELS(blocks, false)
