// Gradients of a batch norm and of the ReLU behind it: sizes, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_PARAMS_H_
#define METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_PARAMS_H_

#include "kernels/msl/both.h"

// Rows that a part has at least, and the most parts.
#define NORM_GRAD_PART_ROWS 64
#define NORM_GRAD_MOST_PARTS 256
// Channels of a thread where threads are played one after the other.
#define NORM_GRAD_COLUMNS 32
// Elements of a channel that the CPU adds up side by side where channels come before the others.
#define NORM_GRAD_PLANE_PIECE 256

// For NCHW, `part_rows` are a picture's elements of a channel, and each picture is a part.
struct FusedBatchNormGradParams {
  int64_t rows, columns, part_rows;
  float epsilon;
  uint32_t training, relu6, n_parts;
};
static_assert(sizeof(FusedBatchNormGradParams) == 40, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_FUSED_BATCH_NORM_GRAD_FUSED_BATCH_NORM_GRAD_PARAMS_H_
