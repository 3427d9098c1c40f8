// What can be wrong with a frequency-encoding call, for every device.

#ifndef METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_CHECKS_H_
#define METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_CHECKS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"
#include "kernels/frequency_encode/frequency_encode_params.h"

namespace metal_ops {

struct FrequencyEncodeAttrs {
  int64_t n_frequencies = 0;
  bool include_input = true;
  bool times_pi = true;

  // Columns for each dimension.
  int64_t Columns() const { return 2 * n_frequencies + (include_input ? 1 : 0); }
};

inline void CheckFrequencyEncodeAttrs(ArgShapes* shapes, const FrequencyEncodeAttrs& attrs) {
  shapes->Require(
      attrs.n_frequencies >= 0 && attrs.n_frequencies <= FREQUENCY_ENCODE_MAX_FREQUENCIES,
      "n_frequencies must be between 0 and " + std::to_string(FREQUENCY_ENCODE_MAX_FREQUENCIES) +
          ", got " + std::to_string(attrs.n_frequencies) + ".");
}

// inputs; or gradients, inputs.
inline void CheckFrequencyEncode(ArgShapes* shapes, const std::vector<ArgShape>& args,
                                 const FrequencyEncodeAttrs& attrs) {
  shapes->Expect("inputs", args.back(), {"points", "dims"});
  const int64_t n_dims = shapes->Size("dims");
  // Without points, a tensor may have any number of dims.
  shapes->Require(n_dims <= INT64_MAX / std::max<int64_t>(1, attrs.Columns()),
                  "inputs must have at most 2^63 - 1 columns of outputs, " +
                      std::to_string(attrs.Columns()) + " a dim, got " + std::to_string(n_dims) +
                      " dims.");
  if (!shapes->ok() || args.size() == 1) return;
  const std::string width = n_dims < 0 ? "width" : std::to_string(n_dims * attrs.Columns());
  shapes->Expect("gradients", args[0], {"points", width},
                 "It is shaped like FrequencyEncode's outputs.");
}

inline FrequencyEncodeParams MakeFrequencyEncodeParams(int64_t n_points, int64_t n_dims,
                                                       const FrequencyEncodeAttrs& attrs) {
  constexpr double kPi = 3.14159265358979323846;
  FrequencyEncodeParams params = {};
  params.n_points = static_cast<uint64_t>(n_points);
  params.n_dims = static_cast<uint32_t>(n_dims);
  params.n_frequencies = static_cast<uint32_t>(attrs.n_frequencies);
  params.include_input = attrs.include_input ? 1 : 0;
  const double turns = attrs.times_pi ? 0.5 : 0.5 / kPi;
  params.turns_high = static_cast<float>(turns);
  params.turns_low = static_cast<float>(turns - params.turns_high);
  params.slope = static_cast<float>(attrs.times_pi ? kPi : 1.0);
  return params;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_CHECKS_H_
