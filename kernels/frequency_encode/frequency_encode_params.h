// Frequency encoding's struct, read by host code and shader alike.
//
// y = (x, sin(w_0 x), cos(w_0 x), sin(w_1 x), ...), each a block of all dimensions, w_k = 2^k pi or
// 2^k (equation 4 of Mildenhall et al. 2020, its code without pi). Phases are counted in turns, u =
// w_k x / (2 pi), where doubling is exact and whole turns can be dropped exactly: u = x per_turn,
// kept as the sum of two floats.

#ifndef METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_PARAMS_H_
#define METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define FREQUENCY_ENCODE_MAX_FREQUENCIES 32

struct FrequencyEncodeParams {
  uint64_t n_points;
  uint32_t n_dims;
  uint32_t n_frequencies;
  uint32_t include_input;
  float turns_high;  // w_0 / (2 pi)
  float turns_low;   // the remainder of turns_high
  float slope;       // w_0
};
static_assert(sizeof(FrequencyEncodeParams) == 32, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_PARAMS_H_
