// Convolutions in blocks.

#include <metal_stdlib>

#include "kernels/gemm/gemm_conv.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_CONV_KERNELS
