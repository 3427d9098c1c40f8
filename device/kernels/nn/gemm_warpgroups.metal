// Products in blocks for matrix units that read threadgroup memory themselves, as the fused ops have
// them.

#include <metal_stdlib>

#include "kernels/gemm/gemm_warpgroups.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_WARPGROUPS_KERNELS
