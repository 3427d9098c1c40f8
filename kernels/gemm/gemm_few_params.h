// Sizes of the shaders of products of a few rows (gemm_few.metal.h), read by host code, too.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_FEW_PARAMS_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_FEW_PARAMS_H_

// Rows that are multiplied at once: 1, 2, 4, or these.
#define GEMM_FEW_ROWS 8
// Per threadgroup.
#define GEMM_FEW_SIMDGROUPS 8
// Columns that a simdgroup has where they are lines of terms.
#define GEMM_FEW_LINES 4
// Lanes along the columns where they are neighbours, of 16 bytes each.
#define GEMM_FEW_LANES 4

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_FEW_PARAMS_H_
