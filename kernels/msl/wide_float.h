// Sums and products of floats in 48 bits, for running sums along rays: where the host's kernels
// calculate in double, which shaders do not have.
//
// A WideFloat is an unevaluated sum of two floats, `low` at most half a unit in the last place of
// `high` (Dekker 1971; Knuth, TAOCP 2, 4.2.2). `high` is the rounded value. Wants a compiler that
// does not reassociate: shaders are compiled without fast-math.

#ifndef METAL_OPS_KERNELS_MSL_WIDE_FLOAT_H_
#define METAL_OPS_KERNELS_MSL_WIDE_FLOAT_H_

#include <metal_stdlib>

struct WideFloat {
  float high;
  float low;
};

inline WideFloat wide(float x) {
  WideFloat y;
  y.high = x;
  y.low = 0.0f;
  return y;
}

// Infinity minus infinity is how `low` would become NaN: it says nothing there.
inline WideFloat wide_join(float high, float low) {
  WideFloat y;
  y.high = high;
  y.low = metal::isfinite(high) ? low : 0.0f;
  return y;
}

// high + low, where |high| >= |low|.
inline WideFloat wide_renormalize(float high, float low) {
  const float sum = high + low;
  return wide_join(sum, low - (sum - high));
}

// a + b, exactly.
inline WideFloat wide_sum(float a, float b) {
  const float sum = a + b;
  const float of_b = sum - a;
  return wide_join(sum, (a - (sum - of_b)) + (b - of_b));
}

// a b, exactly.
inline WideFloat wide_product(float a, float b) {
  const float product = a * b;
  return wide_join(product, metal::fma(a, b, -product));
}

inline WideFloat wide_negate(WideFloat a) {
  a.high = -a.high;
  a.low = -a.low;
  return a;
}

inline WideFloat wide_add(WideFloat a, float b) {
  const WideFloat sum = wide_sum(a.high, b);
  return wide_renormalize(sum.high, sum.low + a.low);
}

// Right to 2^-46 of the result even where the two cancel.
inline WideFloat wide_add(WideFloat a, WideFloat b) {
  const WideFloat high = wide_sum(a.high, b.high), low = wide_sum(a.low, b.low);
  const WideFloat sum = wide_renormalize(high.high, high.low + low.high);
  return wide_renormalize(sum.high, sum.low + low.low);
}

// Values that are not finite have no `low`: 0 times infinity would make NaN of it.
inline WideFloat wide_multiply(WideFloat a, float b) {
  const WideFloat product = wide_product(a.high, b);
  if (!metal::isfinite(product.high)) return product;
  return wide_renormalize(product.high, metal::fma(a.low, b, product.low));
}

inline WideFloat wide_multiply(WideFloat a, WideFloat b) {
  const WideFloat product = wide_product(a.high, b.high);
  if (!metal::isfinite(product.high)) return product;
  return wide_renormalize(product.high, product.low + metal::fma(a.high, b.low, a.low * b.high));
}

// Whether a >= b.
inline bool wide_at_least(WideFloat a, float b) {
  return a.high > b || (a.high == b && a.low >= 0.0f);
}

// A WideFloat times a power of two: for products of many factors, which leave float's range on the
// way. `value` is 0, not finite, or has 0.5 <= |high| < 1.
struct ScaledFloat {
  WideFloat value;
  int exponent;
};

inline ScaledFloat scaled_normalize(WideFloat value, int exponent) {
  ScaledFloat y;
  y.value = value;
  y.exponent = 0;
  if (value.high == 0.0f || !metal::isfinite(value.high)) return y;
  int shift = 0;
  y.value.high = metal::frexp(value.high, shift);
  y.value.low = metal::ldexp(value.low, -shift);
  y.exponent = exponent + shift;
  return y;
}

inline ScaledFloat scaled(float x) { return scaled_normalize(wide(x), 0); }

// In two steps: 2^exponent alone may be no float.
inline float scaled_to_float(ScaledFloat x) {
  const int exponent = metal::clamp(x.exponent, -400, 400);
  return metal::ldexp(metal::ldexp(x.value.high, exponent / 2), exponent - exponent / 2);
}

inline ScaledFloat scaled_multiply(ScaledFloat a, ScaledFloat b) {
  return scaled_normalize(wide_multiply(a.value, b.value), a.exponent + b.exponent);
}

inline ScaledFloat scaled_add(ScaledFloat a, ScaledFloat b) {
  if (a.value.high == 0.0f) return b;
  if (b.value.high == 0.0f) return a;
  // Values that are not finite have exponent 0, and no shift changes it.
  const int exponent = metal::max(a.exponent, b.exponent);
  const int shift_a = metal::max(a.exponent - exponent, -100);
  const int shift_b = metal::max(b.exponent - exponent, -100);
  const WideFloat at =
      wide_join(metal::ldexp(a.value.high, shift_a), metal::ldexp(a.value.low, shift_a));
  const WideFloat bt =
      wide_join(metal::ldexp(b.value.high, shift_b), metal::ldexp(b.value.low, shift_b));
  return scaled_normalize(wide_add(at, bt), exponent);
}

#endif  // METAL_OPS_KERNELS_MSL_WIDE_FLOAT_H_
