// Gradients of a bias and of the activation behind it: sizes, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_PARAMS_H_
#define METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_PARAMS_H_

#include "kernels/msl/both.h"

// Rows that one part of the bias' gradient sums at least, and the most parts.
#define BIAS_GRAD_PART_ROWS 64
#define BIAS_GRAD_MOST_PARTS 256
// Columns of a thread where threads are played one after the other.
#define BIAS_GRAD_COLUMNS 32

// Numbers of the activations, in the order of the op's attribute.
#define BIAS_GRAD_RELU 0
#define BIAS_GRAD_RELU6 1
#define BIAS_GRAD_ELU 2
#define BIAS_GRAD_LEAKY_RELU 3
#define BIAS_GRAD_SIGMOID 4
#define BIAS_GRAD_TANH 5
#define BIAS_GRAD_SWISH 6
#define BIAS_GRAD_GELU_EXACT 7
#define BIAS_GRAD_GELU_APPROXIMATE 8
#define BIAS_GRAD_MISH 9

// Elements of a channel that the CPU adds up side by side where channels come before the others.
#define BIAS_GRAD_PLANE_PIECE 256

// For NCHW, `part_rows` are a picture's elements of a channel, and each picture is a part.
struct FusedBiasGradParams {
  int64_t rows, columns, part_rows;
  float alpha;
  uint32_t activation, n_parts;
};
static_assert(sizeof(FusedBiasGradParams) == 40, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_FUSED_BIAS_GRAD_FUSED_BIAS_GRAD_PARAMS_H_
