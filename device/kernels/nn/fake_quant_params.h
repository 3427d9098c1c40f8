// Fake quantization: a struct read by host code and shaders alike.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_FAKE_QUANT_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_FAKE_QUANT_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Columns that a thread adds up where they are neighbours: a vector of a CPU's.
#define FAKE_QUANT_LANES 8

// A tensor of `elements`, of which `columns` stand side by side: channels where `per_channel`. A thread
// of the sums has a column of `chunk` rows.
struct FakeQuantParams {
  uint64_t elements;
  uint32_t columns, rows, chunk, chunks;
  uint32_t per_channel;
  float least, largest;  // whole numbers
  uint32_t reserved;
};
static_assert(sizeof(FakeQuantParams) == 40, "host and shader must agree");

#endif  // METAL_OPS_DEVICE_KERNELS_NN_FAKE_QUANT_PARAMS_H_
