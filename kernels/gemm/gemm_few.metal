// Products of a few rows by threadgroups.

#include <metal_stdlib>

#include "kernels/gemm/gemm_few.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

GEMM_FEW_KERNELS
