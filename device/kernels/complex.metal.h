// Arithmetic of complex numbers, which are float2, and of real ones under the same names.

#ifndef METAL_OPS_DEVICE_KERNELS_COMPLEX_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_COMPLEX_METAL_H_

#include <metal_stdlib>

inline float times(float a, float b) { return a * b; }
inline float2 times(float2 a, float2 b) {
  return float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
inline float conjugate(float x) { return x; }
inline float2 conjugate(float2 x) { return float2(x.x, -x.y); }

// Neither square leaves the range.
inline float magnitude(float x) { return metal::abs(x); }
inline float magnitude(float2 x) {
  const float a = metal::abs(x.x), b = metal::abs(x.y);
  const float large = a > b ? a : b, small = a > b ? b : a;
  const float part = large == 0.0f ? 0.0f : small / large;
  const float size = large * metal::sqrt(1.0f + part * part);
  // Infinite as soon as one of them is, and else no number as soon as one is none.
  return large == INFINITY || small == INFINITY ? INFINITY : a != a || b != b ? a + b : size;
}

// By the larger part of b (R. L. Smith 1962, "Algorithm 116: Complex division"), without branches: a compiler runs
// several elements at a time.
inline float over(float a, float b) { return a / b; }
inline float2 over(float2 a, float2 b) {
  const bool wide = metal::abs(b.x) >= metal::abs(b.y);
  const float large = wide ? b.x : b.y, small = wide ? b.y : b.x;
  const float ratio = large == 0.0f ? small : small / large, whole = large + small * ratio;
  const float near_x = wide ? a.x : a.y, near_y = wide ? a.y : a.x;
  const float real = (near_x + near_y * ratio) / whole, other = (near_y - near_x * ratio) / whole;
  return float2(real, wide ? other : -other);
}

#endif  // METAL_OPS_DEVICE_KERNELS_COMPLEX_METAL_H_
