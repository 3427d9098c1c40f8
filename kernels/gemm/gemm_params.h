// A product of matrices, of which a convolution is a case: sizes and strides read by host code and
// shaders alike.
//
// The rows of the product are the points of images, row = (image * out_h + y) * out_w + x, and its
// inner dimension is k = (fy * filter_w + fx) * depth + c: row and k say which element of the input
// is meant, so that no matrix is ever written out. A plain product is one image of one line, under
// a filter of one point. Strides are in elements.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_PARAMS_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Batch dimensions, after merging those that are contiguous for a and b.
#define GEMM_BATCH_DIMS 6

// One thread's part of the product where threads work alone.
#define GEMM_THREAD_ROWS 4
#define GEMM_THREAD_COLUMNS 16
// The same where vectors have 512 bits and there are registers for so many sums: of many columns, and
// of few.
#define GEMM_WIDE_ROWS 6
#define GEMM_WIDE_COLUMNS 64
#define GEMM_MIDDLE_ROWS 12
#define GEMM_MIDDLE_COLUMNS 32
// The same for long sums where vectors have 256 bits, and the number of such tiles, panels of b and terms at a time of
// a thread: as much as a first-level cache keeps.
#define GEMM_CACHED_TILE_ROWS 6
#define GEMM_CACHED_TILES 6
#define GEMM_CACHED_COLUMNS 16
#define GEMM_CACHED_PANELS 16
#define GEMM_CACHED_TERMS 128
// Threads of a group, neighbours along the rows: enough to be worth one, and few enough for many groups.
#define GEMM_THREAD_GROUP 8
// Elements of the sum of parts that a thread takes.
#define GEMM_SUM_LINE 64

// One threadgroup's part, in 8x8 matrices spread over its simdgroups.
#define GEMM_TILE_ROWS 64
#define GEMM_TILE_COLUMNS 64
#define GEMM_TILE_DEPTH 16
#define GEMM_TILE_THREADS 128

struct GemmParams {
  int64_t rows;
  // Element (image, y, x, c) of a; 0 <= y < in_h, 0 <= x < in_w, elsewhere there are zeros.
  int64_t a_image, a_y, a_x, a_c;
  // Element (k, column) of b.
  int64_t b_row, b_column;
  // Where b is packed into panels of a thread's columns: from one panel to the next; else 0.
  int64_t b_panel;
  // Element (image, point, column) of the product and of the residual.
  int64_t out_image, out_point, out_column;
  // Matrices of a batch, outermost dimension last; the product's follow each other.
  int64_t a_batch[GEMM_BATCH_DIMS], b_batch[GEMM_BATCH_DIMS], out_batch;
  uint32_t batch[GEMM_BATCH_DIMS];
  uint32_t columns, depth;
  uint32_t out_h, out_w, in_h, in_w;
  uint32_t filter_h, filter_w, stride_h, stride_w, dilation_h, dilation_w;
  int32_t pad_top, pad_left;
  // Where one long sum is a batch of parts of `depth` terms each: all of its terms; else 0. A convolution's
  // parts have `part_terms`.
  uint32_t split_terms, part_terms;
};
static_assert(sizeof(GemmParams) == 280, "host and shader must agree");

// Lines of a convolution's output, and those that one product of its filter's gradient sums over.
struct GemmLines {
  uint32_t all, part;
};
static_assert(sizeof(GemmLines) == 8, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_PARAMS_H_
