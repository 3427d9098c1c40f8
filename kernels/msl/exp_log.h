// e^y - 1 and log(1 + u), which Metal's library lacks, without cancelling near 0.
//
// Both divide out what the addition of 1 has rounded (Kahan's way), so they are as good as exp and
// log are. NaN stays NaN.

#ifndef METAL_OPS_KERNELS_MSL_EXP_LOG_H_
#define METAL_OPS_KERNELS_MSL_EXP_LOG_H_

#include <metal_stdlib>

inline float precise_expm1(float y) {
  const float e = metal::precise::exp(y);
  const float rise = e - 1.0f;
  if (rise == 0.0f) return y;
  if (rise == -1.0f || metal::isinf(e)) return rise;
  return rise * (y / metal::precise::log(e));
}

// u >= 0.
inline float precise_log1p(float u) {
  const float w = 1.0f + u;
  const float added = w - 1.0f;
  if (added == 0.0f || metal::isinf(w)) return u;
  return metal::precise::log(w) * (u / added);
}

#endif  // METAL_OPS_KERNELS_MSL_EXP_LOG_H_
