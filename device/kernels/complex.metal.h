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
  const float large = metal::max(a, b), part = metal::min(a, b) / large;
  if (metal::isinf(a) || metal::isinf(b)) return INFINITY;
  if (a != a || b != b) return NAN;
  return large == 0.0f ? 0.0f : large * metal::sqrt(1.0f + part * part);
}

// By the larger part of b (R. L. Smith 1962, "Algorithm 116: Complex division").
inline float over(float a, float b) { return a / b; }
inline float2 over(float2 a, float2 b) {
  if (metal::abs(b.x) >= metal::abs(b.y)) {
    const float ratio = b.x == 0.0f ? b.y : b.y / b.x, whole = b.x + b.y * ratio;
    return float2(a.x + a.y * ratio, a.y - a.x * ratio) / whole;
  }
  const float ratio = b.x / b.y, whole = b.x * ratio + b.y;
  return float2(a.x * ratio + a.y, a.y * ratio - a.x) / whole;
}

#endif  // METAL_OPS_DEVICE_KERNELS_COMPLEX_METAL_H_
