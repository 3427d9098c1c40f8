// The sizes of a frequency encoding and its phases' factors, for every device.

#ifndef METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_PLAN_H_
#define METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_PLAN_H_

#include "kernels/frequency_encode/frequency_encode_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// Columns for each dimension.
inline int64_t FrequencyColumns(const OpCall& call) {
  return 2 * call.Int("n_frequencies") + (call.Bool("include_input") ? 1 : 0);
}

inline FrequencyEncodeParams MakeFrequencyEncodeParams(const OpCall& call) {
  constexpr double kPi = 3.14159265358979323846;
  FrequencyEncodeParams params = {};
  params.n_points = static_cast<uint64_t>(call.Size("points"));
  params.n_dims = static_cast<uint32_t>(call.Size("dims"));
  params.n_frequencies = static_cast<uint32_t>(call.Int("n_frequencies"));
  params.include_input = call.Bool("include_input") ? 1 : 0;
  const bool times_pi = call.Bool("times_pi");
  const double turns = times_pi ? 0.5 : 0.5 / kPi;
  params.turns_high = static_cast<float>(turns);
  params.turns_low = static_cast<float>(turns - params.turns_high);
  params.slope = static_cast<float>(times_pi ? kPi : 1.0);
  return params;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_PLAN_H_
