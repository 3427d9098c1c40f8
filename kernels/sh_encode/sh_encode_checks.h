// What can be wrong with a spherical-harmonics call, and the recurrence's factors, for every
// device.

#ifndef METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_CHECKS_H_
#define METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_CHECKS_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/arg_shapes.h"
#include "kernels/sh_encode/sh_encode_params.h"

namespace metal_ops {

inline void CheckShDegree(ArgShapes* shapes, int64_t degree) {
  shapes->Require(degree >= 1 && degree <= SH_ENCODE_MAX_DEGREE,
                  "degree must be between 1 and " + std::to_string(SH_ENCODE_MAX_DEGREE) +
                      ", got " + std::to_string(degree) + ".");
}

// directions; or gradients, directions.
inline void CheckShEncode(ArgShapes* shapes, const std::vector<ArgShape>& args, int64_t degree) {
  shapes->Expect("directions", args.back(), {"points", "3"});
  if (args.size() == 1) return;
  shapes->Expect("gradients", args[0], {"points", std::to_string(degree * degree)},
                 "There are degree^2 coefficients.");
}

// Worked out in double. The recurrence runs on normalised functions, whose factors stay near 1.
inline ShEncodeParams MakeShEncodeParams(int64_t n_points, int64_t degree) {
  constexpr double kPi = 3.14159265358979323846;
  ShEncodeParams params = {};
  params.n_points = static_cast<uint64_t>(n_points);
  params.degree = static_cast<uint32_t>(degree);
  // K_m^m (2m - 1)!!, step by step: its square grows by (2m + 1) / (2m) from m - 1 to m.
  double first = std::sqrt(1.0 / (4.0 * kPi));
  for (int m = 0; m < SH_ENCODE_MAX_DEGREE; ++m) {
    if (m > 0) first *= -std::sqrt((2.0 * m + 1.0) / (2.0 * m));
    params.first[m] = static_cast<float>(first * (m > 0 ? std::sqrt(2.0) : 1.0));
    for (int l = m + 1; l < SH_ENCODE_MAX_DEGREE; ++l) {
      const double a = (4.0 * l * l - 1.0) / (1.0 * l * l - 1.0 * m * m);
      const double b = ((l - 1.0) * (l - 1.0) - 1.0 * m * m) / (4.0 * (l - 1.0) * (l - 1.0) - 1.0);
      params.up[m][l] = static_cast<float>(std::sqrt(a));
      params.down[m][l] = l == m + 1 ? 0.0f : static_cast<float>(std::sqrt(a * b));
    }
  }
  return params;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_CHECKS_H_
