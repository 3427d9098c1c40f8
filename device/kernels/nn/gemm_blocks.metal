// Products in blocks by simdgroups, as the fused ops have them, and parts of long sums.

#include <metal_stdlib>

#include "kernels/gemm/gemm_blocks.metal.h"
#include "kernels/gemm/gemm_floats.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_BLOCKS_KERNELS
GEMM_PARTS_KERNELS
GEMM_FLOATS_KERNELS
GEMM_FLOATS_PARTS_KERNELS
