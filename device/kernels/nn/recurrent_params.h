// Cells of recurrent networks: structs read by host code and shaders alike.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_RECURRENT_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_RECURRENT_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Neighbouring cells of an LSTM that one thread takes where threads work alone.
#define LSTM_LINE 16

// A step of an LSTM. Tensors with a row for every step and sequence are read from row `row` on, the
// cells before from row `row_before` on.
struct LstmParams {
  uint64_t row, row_before;
  uint32_t batch, cells;
  uint32_t ci_gate, f_gate;  // which quarter of the gates; i is the first, o the last
  uint32_t peephole;
  float forget_bias, cell_clip;
  uint32_t single;  // the only step: one product has both parts of the sums, and no step follows
};
static_assert(sizeof(LstmParams) == 48, "host and shader must agree");

struct GruParams {
  uint32_t inputs, cells;
};
static_assert(sizeof(GruParams) == 8, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_NN_RECURRENT_PARAMS_H_
