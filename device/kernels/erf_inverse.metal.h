// The inverse of the error function and of the normal distribution, by w = -log(1 - x^2) (M. Giles 2010, "Approximating
// the erfinv function"); polynomials are least squares of erfinv(x) / x by w, and of erfinv by sqrt(w).

#ifndef METAL_OPS_DEVICE_KERNELS_ERF_INVERSE_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_ERF_INVERSE_METAL_H_

#include <metal_stdlib>

// erfinv(x) of w up to 103.
inline float inverse_error_function_of(float x, float w) {
  using metal::fma;
  if (w < 5.0f) {
    const float t = w - 2.5f;
    float p = 2.85347821e-8f;
    p = fma(p, t, 3.43727049e-7f);
    p = fma(p, t, -3.52885946e-6f);
    p = fma(p, t, -4.39678113e-6f);
    p = fma(p, t, 0.000218602194f);
    p = fma(p, t, -0.00125370752f);
    p = fma(p, t, -0.00417770774f);
    p = fma(p, t, 0.246640726f);
    return fma(p, t, 1.50140942f) * x;
  }
  const float s = metal::sqrt(w);
  float p;
  if (w < 16.0f) {
    const float t = s - 3.0f;
    p = 3.63358823e-5f;
    p = fma(p, t, -6.08286498e-5f);
    p = fma(p, t, -0.000198236017f);
    p = fma(p, t, 0.00115130547f);
    p = fma(p, t, -0.00345249141f);
    p = fma(p, t, 0.00684242567f);
    p = fma(p, t, 1.00266298f);
    p = fma(p, t, 2.83280202f);
  } else {
    const float t = s - 7.0f;
    p = 1.50862591e-8f;
    p = fma(p, t, -9.52897177e-8f);
    p = fma(p, t, 2.50363613e-7f);
    p = fma(p, t, -1.28283669e-6f);
    p = fma(p, t, 6.33246522e-6f);
    p = fma(p, t, 5.32552728e-6f);
    p = fma(p, t, -0.000513125025f);
    p = fma(p, t, 1.00859634f);
    p = fma(p, t, 6.86901979f);
  }
  return metal::copysign(p, x);
}
// Neither 1 - x nor x - 0 is rounded: tiny numbers and the last one below 1 keep their digits.
inline float inverse_error_function(float x) {
  const float size = metal::abs(x);
  if (!(size < 1.0f)) return size == 1.0f ? metal::copysign(INFINITY, x) : NAN;
  return inverse_error_function_of(x, -metal::log((1.0f - size) * (1.0f + size)));
}
// The number that a normal one is below with probability p.
inline float normal_quantile(float p) {
  if (!(p > 0.0f && p < 1.0f)) return p == 0.0f ? -INFINITY : p == 1.0f ? INFINITY : NAN;
  const float side = p < 0.5f ? p : 1.0f - p, x = 2.0f * p - 1.0f;
  const float w = -(metal::log(side) + metal::log(4.0f * (1.0f - side)));
  return 1.41421356f * inverse_error_function_of(x, w);
}

#endif  // METAL_OPS_DEVICE_KERNELS_ERF_INVERSE_METAL_H_
