// Loops over strided tensors: constants and structs read by host code and by the shaders alike.
//
// A loop has up to STRIDED_DIMS dimensions, innermost first, and runs as a grid of dims[0] x
// dims[1] x (the others' product), so that the innermost two cost no division.

#ifndef METAL_OPS_DEVICE_KERNELS_STRIDED_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_STRIDED_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define STRIDED_DIMS 8
#define STRIDED_ROW_DIMS 4
#define STRIDED_OPERANDS 3  // with which the struct is small enough to be kept in registers
#define ADD_N_INPUTS 8
#define REDUCE_CHUNK 1024
#define REDUCE_COLUMNS 16

// Where element (0, 0, ...) lies and how far apart neighbours are, in elements.
struct StridedOperand {
  int64_t offset;
  int64_t strides[STRIDED_DIMS];
};
static_assert(sizeof(StridedOperand) == 72, "host and shader must agree");

struct StridedParams {
  uint32_t dims[STRIDED_DIMS];
  StridedOperand operands[STRIDED_OPERANDS];
};
static_assert(sizeof(StridedParams) == 248, "host and shader must agree");

// One pass of a sum: every output sums `chunk` elements out of `count`, and there are `chunks` of
// them.
struct ReduceParams {
  uint32_t kept_dims[STRIDED_DIMS];  // innermost first
  uint32_t reduced_dims[STRIDED_DIMS];
  int64_t kept_strides[STRIDED_DIMS];
  int64_t reduced_strides[STRIDED_DIMS];
  uint64_t count;
  uint64_t chunk;
  uint32_t chunks;
  float divisor;  // of the last pass of a mean; -1: the root is taken; all others have 1
};
static_assert(sizeof(ReduceParams) == 216, "host and shader must agree");

struct AddNParams {
  uint32_t inputs;
  uint32_t reserved;
};
static_assert(sizeof(AddNParams) == 8, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_STRIDED_PARAMS_H_
