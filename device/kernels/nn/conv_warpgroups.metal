// Convolutions and their gradients by warpgroup products, as the fused ops have the former.

#include <metal_stdlib>

#include "kernels/gemm/conv_warpgroups.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

CONV_WARPGROUPS_KERNELS(conv_warpgroups)
CONV_WARPGROUPS_KERNELS(conv_warpgroups_input)
CONV_WARPGROUPS_KERNELS(conv_warpgroups_filter)
INSTANTIATE_KERNEL("conv_warpgroups_join_half", conv_warpgroups_join, half)
IF_BFLOAT(INSTANTIATE_KERNEL("conv_warpgroups_join_bfloat", conv_warpgroups_join, bfloat))
