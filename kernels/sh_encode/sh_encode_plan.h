// The factors of the spherical harmonics' recurrence, for every device.

#ifndef METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_PLAN_H_
#define METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_PLAN_H_

#include <cmath>
#include <cstdint>

#include "kernels/sh_encode/sh_encode_params.h"

namespace metal_ops {

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

#endif  // METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_PLAN_H_
