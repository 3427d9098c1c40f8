// Convolutions in blocks, as the fused ops have them, and parts of their long sums.

#include <metal_stdlib>

#include "kernels/gemm/gemm_conv.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_CONV_KERNELS
GEMM_CONV_PARTS_KERNELS
