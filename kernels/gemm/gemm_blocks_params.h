// Sizes of the shaders of products in blocks (gemm_blocks.metal.h), read by host code, too.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_BLOCKS_PARAMS_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_BLOCKS_PARAMS_H_

// Blocks of rows whose threadgroups follow each other: their reads of a stay in the cache.
#define GEMM_BLOCKS_BAND 8

// A line in threadgroup memory is 16 bytes longer, so that a column is spread over the banks.
#define GEMM_BLOCK_LINE(n, bytes) ((n) + 16 / (bytes))
// Elements of a tile, as lines of either order: the more of both.
#define GEMM_BLOCK_TILE(rows, depth, bytes)                                        \
  ((rows) * GEMM_BLOCK_LINE(depth, bytes) > (depth) * GEMM_BLOCK_LINE(rows, bytes) \
       ? (rows) * GEMM_BLOCK_LINE(depth, bytes)                                    \
       : (depth) * GEMM_BLOCK_LINE(rows, bytes))
// Bytes of threadgroup memory.
#define GEMM_BLOCK_BYTES(rows, columns, depth, stages, bytes) \
  ((stages) * (bytes) *                                       \
   (GEMM_BLOCK_TILE(rows, depth, bytes) + GEMM_BLOCK_TILE(columns, depth, bytes)))

// Blocks: rows, columns, terms of a step, tiles of 16 rows and of 8 columns that a simdgroup has, steps
// that are in threadgroup memory, simdgroups that share a step's terms.
#define GEMM_LARGE_BLOCK 128, 256, 64, 4, 8, 3, 1
#define GEMM_MIDDLE_BLOCK 128, 128, 64, 4, 8, 3, 1
#define GEMM_LOW_BLOCK 64, 64, 128, 4, 4, 3, 2
#define GEMM_THIN_BLOCK 16, 32, 128, 1, 4, 6, 4
// They take 32 KiB of threadgroup memory.
#define GEMM_SMALL_BLOCK 64, 64, 32, 2, 4, 2, 1
#define GEMM_SHORT_BLOCK 16, 32, 64, 1, 4, 2, 2
// For float32, which threads multiply, a tile of 32 x 64 per simdgroup (gemm_floats.metal.h). Small ones are
// of 32 KiB, too.
#define GEMM_LARGE_FLOATS 128, 128, 16, 2, 8, 3, 1
#define GEMM_SMALL_FLOATS 64, 64, 16, 2, 8, 2, 1

// Blocks whose matrices four simdgroups multiply together: rows, columns, steps that are in
// threadgroup memory, products of a step that may run into the next. The first two want a memory that
// only GPUs with such a unit have.
#define GEMM_WARPGROUP_DEPTH 64
#define GEMM_WARPGROUP_BYTES(rows, columns, stages, bytes) \
  ((stages) * (bytes) * GEMM_WARPGROUP_DEPTH * ((rows) + (columns)))
#define GEMM_WIDE_WARPGROUPS 128, 256, 4, 1
#define GEMM_EVEN_WARPGROUPS 128, 128, 6, 1
#define GEMM_SMALL_WARPGROUPS 64, 64, 2, 0

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_BLOCKS_PARAMS_H_
