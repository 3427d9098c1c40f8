// Convolutions and their gradients by warpgroup products (conv_warpgroups.metal.h): sizes that host code and
// shaders read alike. Images are NHWC without gaps; channels and filters are multiples of 8; what is read begins at a
// multiple of 16 bytes and has fewer than 2^31 elements.

#ifndef METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_PARAMS_H_
#define METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_PARAMS_H_

#include "kernels/gemm/gemm_blocks_params.h"

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Rows, columns, steps in threadgroup memory, and products of a step that may run into the next. Small ones take
// 32 KiB.
#define CONV_EVEN_WARPGROUPS 128, 128, 3, 0
#define CONV_TALL_WARPGROUPS 128, 64, 3, 0
#define CONV_SMALL_WARPGROUPS 64, 64, 2, 0

// The larger of the tiles and of the sums on their way out.
#define CONV_WARPGROUP_STEPS(rows, columns, stages) GEMM_WARPGROUP_BYTES(rows, columns, stages, 2)
#define CONV_WARPGROUP_SUMS(rows, columns) (4 * (rows) * ((columns) + 4))
#define CONV_WARPGROUP_BYTES(rows, columns, stages)                                 \
  (CONV_WARPGROUP_STEPS(rows, columns, stages) > CONV_WARPGROUP_SUMS(rows, columns) \
       ? CONV_WARPGROUP_STEPS(rows, columns, stages)                                \
       : CONV_WARPGROUP_SUMS(rows, columns))

struct ConvGroupsParams {
  // Points where windows begin, of all images, and of one: rows of the product, or terms of the filter's gradient. The
  // input's gradient has here those of one phase of the stride.
  uint32_t points, out_h, out_w;
  // The images that are gathered: the input, or for the input's gradient the output's.
  uint32_t in_h, in_w, channels;
  uint32_t columns;
  uint32_t filter_h, filter_w, stride_h, stride_w, dilation_h, dilation_w;
  int32_t pad_top, pad_left;
  // The input's gradient: the images that are written.
  uint32_t to_h, to_w;
  // The filter's gradient: points that one threadgroup sums over, a multiple of 64.
  uint32_t part;
};
static_assert(sizeof(ConvGroupsParams) == 72, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_PARAMS_H_
