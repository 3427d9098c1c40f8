// Convolutions by warpgroup products.

#include <metal_stdlib>

#include "kernels/gemm/conv_warpgroups.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

CONV_WARPGROUPS_KERNELS(conv_warpgroups)
