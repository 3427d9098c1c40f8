// Layers of recurrent networks over whole sequences: structs read by host code and shaders alike.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_RNN_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_RNN_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Neighbouring cells that one thread takes where threads work alone.
#define RNN_LINE 16

// Numbers that the way back reads of each cell and step.
#define RNN_LSTM_SAVED 6  // i, f, c, o; the cell, and its tanh
#define RNN_GRU_SAVED 4   // z, r, h, and the factor of r

// A step. Tensors with one for every step and sequence have it at row `row + sequence * stride`; the
// step before has row `row_before + sequence * stride`.
struct RnnParams {
  uint64_t row, row_before;
  uint32_t stride, step, cells;
  uint32_t saves;  // whether the way back is gone
};
static_assert(sizeof(RnnParams) == 32, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_NN_RNN_PARAMS_H_
