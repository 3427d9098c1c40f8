// float16 and bfloat16 on the host, which has no such types everywhere.

#ifndef METAL_OPS_DEVICE_KERNELS_HALF_H_
#define METAL_OPS_DEVICE_KERNELS_HALF_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/runtime/op.h"

namespace metal_ops {

inline float FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                     : exponent == 31
                         ? (mantissa != 0 ? NAN : INFINITY)
                         : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

inline float FromBfloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// x rounded to a float type: the nearest of its numbers, the even one of two.
inline float RoundTo(DType type, float x) {
  if (type == DType::kFloat || x == 0 || !std::isfinite(x)) return x;
  const bool half = type == DType::kHalf;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int unit = half ? std::max(exponent, -13) - 11 : exponent - 8;
  const float rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  return half && std::abs(rounded) > 65504 ? std::copysign(INFINITY, x) : rounded;
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_HALF_H_
