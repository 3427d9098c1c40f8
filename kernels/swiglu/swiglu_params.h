// SwiGLU: sizes, for host code and shaders alike.

#ifndef METAL_OPS_KERNELS_SWIGLU_SWIGLU_PARAMS_H_
#define METAL_OPS_KERNELS_SWIGLU_SWIGLU_PARAMS_H_

#include "kernels/msl/both.h"

struct SwigluParams {
  int64_t rows, columns;  // of y; one row where gate and up are two tensors
  int64_t up_offset;      // of an element of up behind its gate: columns where both are one tensor
};
static_assert(sizeof(SwigluParams) == 24, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_SWIGLU_SWIGLU_PARAMS_H_
