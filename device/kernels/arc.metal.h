// The inverse circular functions without branches, so that a compiler runs several elements at a time. At
// most 2.6 units in the last place off.

#ifndef METAL_OPS_DEVICE_KERNELS_ARC_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_ARC_METAL_H_

#include <metal_stdlib>

// Multiples of pi / 4 and the remainders that float drops from them.
#define ARC_QUARTER 0.785398163f
#define ARC_HALF 1.57079633f
#define ARC_HALF_REST -4.37113883e-8f
#define ARC_WHOLE 3.14159265f
#define ARC_WHOLE_REST -8.74227766e-8f

// The angle of (x, y); polynomials are least squares of atan(u) / u and asin(u) / u.
inline float arc_tangent_2(float y, float x) {
  using namespace metal;
  // Sums of the largest floats would overflow.
  const float scale = max(abs(x), abs(y)) > 1e37f ? 0.125f : 1.0f;
  const float a = abs(y) * scale, b = abs(x) * scale;
  const float high = a > b ? a : b, low = a > b ? b : a;
  // For more than tan(pi / 8), the remaining angle to pi / 4.
  const bool upper = low > 0.41421356f * high;
  const float over = upper ? low - high : low, under = upper ? low + high : high;
  const float u = low == high || low == 0.0f ? 0.0f : over / under;
  const float z = u * u;
  float p = -0.0645904466f;
  p = fma(p, z, 0.107461989f);
  p = fma(p, z, -0.14264223f);
  p = fma(p, z, 0.199995503f);
  p = fma(p, z, -0.333333313f);
  float angle = fma(p * z, u, u);
  angle = upper || (low == high && high != 0.0f) ? ARC_QUARTER + angle : angle;
  angle = a > b ? (ARC_HALF - angle) + ARC_HALF_REST : angle;
  angle = as_type<uint>(x) >> 31 != 0 ? (ARC_WHOLE - angle) + ARC_WHOLE_REST : angle;
  return a != a || b != b ? x + y : copysign(angle, y);
}
inline float arc_tangent(float x) { return arc_tangent_2(x, 1.0f); }

// The arc sine for |s| up to 1 / 2.
inline float arc_sine_near(float s) {
  const float z = s * s;
  float p = 0.0338053852f;
  p = metal::fma(p, z, 0.0170781072f);
  p = metal::fma(p, z, 0.0311160944f);
  p = metal::fma(p, z, 0.0445980392f);
  p = metal::fma(p, z, 0.0750009865f);
  p = metal::fma(p, z, 0.166666657f);
  return metal::fma(p * z, s, s);
}
inline float arc_sine(float x) {
  const float size = metal::abs(x);
  const bool far = size > 0.5f;
  const float root = metal::sqrt((1.0f - size) * 0.5f);
  const float near = arc_sine_near(far ? root : size);
  const float angle = far ? ARC_HALF - (2.0f * near - ARC_HALF_REST) : near;
  return metal::copysign(angle, x);
}
inline float arc_cosine(float x) {
  const float size = metal::abs(x);
  const bool far = size > 0.5f;
  const float root = metal::sqrt((1.0f - size) * 0.5f);
  const float near = arc_sine_near(far ? root : x);
  const float wide = x > 0.0f ? 2.0f * near : ARC_WHOLE - (2.0f * near - ARC_WHOLE_REST);
  return far ? wide : ARC_HALF - (near - ARC_HALF_REST);
}

#endif  // METAL_OPS_DEVICE_KERNELS_ARC_METAL_H_
