// Convolutions in blocks, as the fused ops have them, and parts of their long sums.

#include <metal_stdlib>

#include "kernels/gemm/gemm_block_kernels.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_CONV_KERNELS
GEMM_PARTS_KERNELS(conv, true)
