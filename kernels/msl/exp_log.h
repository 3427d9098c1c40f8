// e^y - 1 and log(1 + u), which Metal's library lacks, without cancelling near 0, and without branches or
// calls: a compiler for processors makes vector code of loops with them. At most 1.7 units in the last
// place off. NaN stays NaN.

#ifndef METAL_OPS_KERNELS_MSL_EXP_LOG_H_
#define METAL_OPS_KERNELS_MSL_EXP_LOG_H_

#include <metal_stdlib>

// ln 2, and the remainder that float drops from it.
#define EXP_LOG_LN2 0.693147182f
#define EXP_LOG_LN2_REST -1.90465432e-9f

inline float precise_expm1(float y) {
  using namespace metal;
  const float x = y > 89.0f ? 89.0f : y < -20.0f ? -20.0f : y;
  const float n = rint(x * 1.44269504f);
  const float r = fma(-n, EXP_LOG_LN2_REST, fma(-n, EXP_LOG_LN2, x));
  float p = 0.00139412389f;
  p = fma(p, r, 0.00836324878f);
  p = fma(p, r, 0.0416663736f);
  p = fma(p, r, 0.166665763f);
  p = fma(p, r, 0.5f);
  p = fma(p, r * r, r);  // e^r - 1
  // 2^n itself may be no float. The sum's last bits are n's.
  const float half_power = as_type<float>((as_type<uint>(n + 12582912.0f) + 126u) << 23);
  return y == 0.0f ? y : 2.0f * fma(p, half_power, half_power - 0.5f);
}

// u >= -1.
inline float precise_log1p(float u) {
  using namespace metal;
  const float w = 1.0f + u;
  // The part that the addition has rounded away.
  const float added = w - 1.0f, lost = (1.0f - (w - added)) + (u - added);
  const int bits = as_type<int>(w);
  const int n = (bits - 0x3f3504f3) >> 23;  // the mantissa in [sqrt(1/2), sqrt(2))
  const float shrink = as_type<float>(uint(max(127 - n, 0)) << 23);
  const float f = fma(lost, shrink, as_type<float>(bits - n * (1 << 23)) - 1.0f);
  float p = 0.0691536814f;
  p = fma(p, f, -0.117898077f);
  p = fma(p, f, 0.118729763f);
  p = fma(p, f, -0.123843484f);
  p = fma(p, f, 0.142186582f);
  p = fma(p, f, -0.16669251f);
  p = fma(p, f, 0.200022265f);
  p = fma(p, f, -0.249999866f);
  p = fma(p, f, 0.333333105f);
  const float square = f * f, count = float(n);
  const float low = fma(square, -0.5f, fma(count, EXP_LOG_LN2_REST, p * square * f));
  const float v = fma(count, EXP_LOG_LN2, f + low);
  if (u == 0.0f) return u;
  return w > 0.0f ? (w < INFINITY ? v : u) : w == 0.0f ? -INFINITY : w == w ? NAN : u;
}

#endif  // METAL_OPS_KERNELS_MSL_EXP_LOG_H_
