// Products in blocks by simdgroups.

#include <metal_stdlib>

#include "kernels/gemm/gemm_blocks.metal.h"
#include "kernels/gemm/gemm_floats.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_BLOCKS_KERNELS
GEMM_FLOATS_KERNELS
