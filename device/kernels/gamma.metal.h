// The gamma function's logarithm and derivatives, the incomplete gamma functions and their derivatives by the first
// argument, Hurwitz's zeta function. Abramowitz and Stegun 6.1, 6.3, 6.4, 6.5; near x = a N. M. Temme 1979, "The
// asymptotic expansion of the incomplete gamma functions" (DLMF 8.12); zeta by the formula of Euler and Maclaurin
// (Knuth, TAOCP 1, 1.2.11.2).

#ifndef METAL_OPS_DEVICE_KERNELS_GAMMA_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_GAMMA_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/epilogue_params.h"
#include "kernels/msl/exp_log.h"

#define SPECIAL_EPSILON 5.9604645e-8f
#define SPECIAL_TERMS 2000

// Less Stirling's formula: log(a!) - ((a + 1/2) log(a) - a + log(2 pi) / 2), for a >= 8.
inline float stirling_series(float a) {
  const float r = 1.0f / a, square = r * r;
  return r * (0.083333333f + square * (-0.0027777778f + square * 7.9365079e-4f));
}
// log(gamma(2 + w)) for |w| up to 1/2, whose root w = 0 keeps its digits: the series of (-1)^k (zeta(k) - 1) w^k / k
// (Abramowitz and Stegun 6.1.33).
inline float log_gamma_near_2(float w) {
  const float zetas[14] = {0.6449340668f,   0.2020569032f,   0.0823232337f,   0.0369277551f,
                           0.0173430620f,   0.0083492774f,   0.0040773562f,   0.0020083928f,
                           9.945751278e-4f, 4.941886041e-4f, 2.460865533e-4f, 1.227133476e-4f,
                           6.124813506e-5f, 3.058823631e-5f};
  float sum = 0.0f;
  for (int k = 15; k >= 2; --k) {
    sum = (k % 2 == 0 ? 1.0f : -1.0f) * zetas[k - 2] / float(k) + w * sum;
  }
  return w * (0.4227843351f + w * sum);
}
// log(gamma(1 + a)) for a > 0: by factors down to that, whose logarithms do not cancel, and by Stirling from 8 on.
inline float log_factorial(float a) {
  if (a >= 8.0f) return (a + 0.5f) * metal::log(a) - a + 0.91893853f + stirling_series(a);
  if (a < 0.5f) return log_gamma_near_2(a) - precise_log1p(a);
  float product = 1.0f, z = a;
  while (z >= 1.5f) {
    product *= z;
    z -= 1.0f;
  }
  return log_gamma_near_2(z - 1.0f) + metal::log(product);
}
inline float log_gamma(float x) {
  using namespace metal;
  if (x != x) return x;
  if (isinf(x) || (x <= 0.0f && x == floor(x))) return INFINITY;
  if (abs(x) < 1e-10f) return -log(abs(x));
  float reflected = 0.0f, sign = 1.0f;
  if (x < 0.0f) {
    // gamma(x) gamma(1 - x) = pi / sin(pi x), by how far x is from a whole number.
    reflected = 1.14472989f - log(sin(3.14159265f * abs(x - rint(x))));
    sign = -1.0f;
    x = 1.0f - x;
  }
  float size;
  if (x < 0.5f) {
    size = log_gamma_near_2(x) - log(x * (x + 1.0f));
  } else if (x < 1.5f) {
    size = log_gamma_near_2(x - 1.0f) - log(x);
  } else {
    size = log_factorial(x - 1.0f);
  }
  return reflected + sign * size;
}

// The derivative of log(gamma(x)).
inline float digamma(float x) {
  using namespace metal;
  float reflected = 0.0f;
  if (x <= 0.0f) {
    if (x == floor(x)) return NAN;
    // pi times a cotangent, which is a tangent where that is small.
    const float r = x - rint(x), size = abs(r);
    const float near = tan(3.14159265f * (size > 0.25f ? 0.5f - size : size));
    reflected = copysign(3.14159265f * (size > 0.25f ? near : 1.0f / near), r);
    x = 1.0f - x;
  }
  float below = 0.0f;
  while (x < 10.0f) {
    below += 1.0f / x;
    x += 1.0f;
  }
  const float r = 1.0f / x / x;
  const float series = r * (0.083333333f - r * (0.0083333333f - r * 0.003968254f));
  return log(x) - 0.5f / x - series - below - reflected;
}

// ---- the incomplete gamma functions -------------------------------------------------------------

// mu - log(1 + mu), from -0.55 to 1.3, without cancelling: with s = mu / (2 + mu), log(1 + mu) = 2 (s + s^3 / 3 + ...).
inline float less_log1p(float mu) {
  const float s = mu / (2.0f + mu), z = s * s;
  float sum = 0.0526315789f;
  for (float k = 17.0f; k >= 3.0f; k -= 2.0f) sum = sum * z + 1.0f / k;
  return mu * s - 2.0f * s * z * sum;
}

// x^a exp(-x) / gamma(1 + a). For large a by how far x is from it: the terms would cancel.
inline float gamma_term(float a, float x) {
  using namespace metal;
  if (a < 8.0f && x < 1.0f) return pow(x, a) * exp(-x - log_factorial(a));
  if (a < 8.0f) return exp(a * log(x) - x - log_factorial(a));
  const float far = (x - a) / a;
  const float less = far > -0.55f && far < 1.3f ? less_log1p(far) : far - log(x / a);
  return exp(-a * less - stirling_series(a)) / (2.50662827f * sqrt(a));
}

// A function and its derivative by `a`.
struct Sloped {
  float value, slope;
};
inline Sloped sloped(float value, float slope) {
  Sloped found;
  found.value = value;
  found.slope = slope;
  return found;
}

// The lower function over gamma_term, of x up to a.
inline Sloped gamma_series(float a, float x) {
  float term = 1.0f, sum = 1.0f, r = a, harmonic = 0.0f, slope = 0.0f;
  for (int i = 0; i < SPECIAL_TERMS && term * (1.0f + harmonic) > SPECIAL_EPSILON * sum; ++i) {
    r += 1.0f;
    term *= x / r;
    harmonic += 1.0f / r;
    sum += term;
    slope -= term * harmonic;
  }
  return sloped(sum, slope);
}

// The upper function over a gamma_term, of x from a on: a continued fraction by Lentz's method.
inline Sloped gamma_fraction(float a, float x) {
  const float tiny = 1e-30f;
  float b = x + 1.0f - a;
  float c = 1.0f / tiny, c_slope = 0.0f;
  float d = 1.0f / (metal::abs(b) < tiny ? tiny : b), d_slope = d * d;
  float h = d, log_slope = d;
  for (int i = 1; i < SPECIAL_TERMS; ++i) {
    const float n = -float(i) * (float(i) - a), n_slope = float(i);
    b += 2.0f;
    const float below = n * d + b;
    const float next = 1.0f / (metal::abs(below) < tiny ? tiny : below);
    d_slope = -next * next * (n_slope * d + n * d_slope - 1.0f);
    d = next;
    c_slope = (n_slope - n * c_slope / c) / c - 1.0f;
    c = b + n / c;
    c = metal::abs(c) < tiny ? tiny : c;
    const float change = d * c, step = c_slope / c + d_slope / d;
    h *= change;
    log_slope += step;
    if (metal::abs(change - 1.0f) < SPECIAL_EPSILON * 2.0f &&
        metal::abs(step) <= SPECIAL_EPSILON * metal::abs(log_slope)) {
      break;
    }
  }
  return sloped(h, h * log_slope);
}

// exp(y^2) erfc(y) of y >= 0, as a root of 2 times EPILOGUE_TAIL_COEFFICIENTS' argument.
inline float scaled_tail(float y) {
  const float coefficients[EPILOGUE_TAIL_TERMS] = EPILOGUE_TAIL_COEFFICIENTS;
  const float t = 1.0f / (EPILOGUE_TAIL_SCALE * 1.41421356f * y + 1.0f);
  float sum = coefficients[EPILOGUE_TAIL_TERMS - 1];
  for (int i = EPILOGUE_TAIL_TERMS - 2; i >= 0; --i) sum = sum * t + coefficients[i];
  return 2.0f * t * sum;
}

// Where series and fraction take more terms the larger `a` is.
inline bool gamma_near(float a, float x) { return a >= 20.0f && metal::abs(x - a) < 0.4f * a; }
// With x = a (1 + mu) and eta^2 / 2 = mu - log(1 + mu): the expansion's coefficients of a^0, a^-1, a^-2.
struct GammaNear {
  float mu, exponent, eta, sum, slope;
};
inline GammaNear gamma_expansion(float a, float x) {
  GammaNear found;
  found.mu = (x - a) / a;
  const float less = less_log1p(found.mu);
  found.exponent = a * less;
  found.eta = metal::copysign(metal::sqrt(2.0f * less), found.mu);
  const float first[8] = {-0.333333333f,   0.0833333333f,    -0.0148148148f, 0.00115740741f,
                          0.000352733686f, -0.000178755144f, 3.91926318e-5f, -2.18544851e-6f};
  const float second[5] = {-0.00185185185f, -0.00347222222f, 0.00264550265f, -0.000990226337f,
                           0.000205761317f};
  const float third[3] = {0.00413359788f, -0.00268132716f, 0.000771604938f};
  // Each polynomial and its derivative.
  float p[3] = {0.0f, 0.0f, 0.0f}, q[3] = {0.0f, 0.0f, 0.0f};
  for (int i = 7; i >= 0; --i) {
    q[0] = q[0] * found.eta + p[0];
    p[0] = p[0] * found.eta + first[i];
    if (i < 5) q[1] = q[1] * found.eta + p[1];
    if (i < 5) p[1] = p[1] * found.eta + second[i];
    if (i < 3) q[2] = q[2] * found.eta + p[2];
    if (i < 3) p[2] = p[2] * found.eta + third[i];
  }
  const float r = 1.0f / a, mu_by_eta = less == 0.0f ? 1.0f : found.mu / found.eta;
  const float log_by_eta = less == 0.0f ? 1.0f : precise_log1p(found.mu) / found.eta;
  found.sum = p[0] + r * (p[1] + r * p[2]);
  const float steps = r * (-q[0] * mu_by_eta + r * (-q[1] * mu_by_eta - p[1]) +
                           r * r * (-q[2] * mu_by_eta - 2.0f * p[2]));
  found.slope = log_by_eta + found.sum * (precise_log1p(found.mu) - 0.5f * r) + steps;
  return found;
}
// The lower function, or the upper one.
inline float gamma_from_expansion(float a, float x, bool upper) {
  const GammaNear near = gamma_expansion(a, x);
  const float rest = near.sum / (2.50662827f * metal::sqrt(a));
  const float tail = 0.5f * scaled_tail(metal::sqrt(near.exponent));
  const bool above = near.mu >= 0.0f;
  const float part = metal::exp(-near.exponent) * (above ? tail + rest : tail - rest);
  return above == upper ? part : 1.0f - part;
}

// The upper function of small a and x, where 1 - gamma_series would cancel: exp(w) - 1, w = log(x^a / gamma(1 + a)),
// and the series of (-x)^n / (n! (a + n)).
inline float gamma_upper_small(float a, float x) {
  float power = 1.0f, sum = 0.0f;
  for (int n = 1; n < 20; ++n) {
    power *= -x / float(n);
    sum += power / (a + float(n));
  }
  const float exponent = a * metal::log(x) - log_factorial(a);
  return -precise_expm1(exponent) - metal::exp(exponent) * a * sum;
}

inline bool gamma_undefined(float a, float x) {
  return a != a || x != x || x < 0.0f || a <= 0.0f || (metal::isinf(a) && metal::isinf(x));
}
inline bool gamma_by_fraction(float a, float x) { return x > 1.0f && x > a; }
// Both functions where they are neither of nothing nor of infinite numbers.
inline float incomplete_gamma(float a, float x, bool upper) {
  if (gamma_near(a, x)) return gamma_from_expansion(a, x, upper);
  if (gamma_by_fraction(a, x)) {
    const float part = gamma_fraction(a, x).value * a * gamma_term(a, x);
    return upper ? part : 1.0f - part;
  }
  if (upper && x <= 1.1f && (x > 0.5f ? 1.1f * x >= a : a * metal::log(x) >= -0.4f)) {
    return gamma_upper_small(a, x);
  }
  const float part = gamma_series(a, x).value * gamma_term(a, x);
  return upper ? 1.0f - part : part;
}
// The lower function's derivative by a, over a gamma_term and times `scale`: by itself it may be no float.
inline float gamma_slope(float a, float x, float scale) {
  if (gamma_near(a, x)) {
    return -metal::exp(stirling_series(a)) * gamma_expansion(a, x).slope * (scale / a);
  }
  if (gamma_by_fraction(a, x)) {
    const Sloped part = gamma_fraction(a, x);
    // digamma(a) is digamma(a + 1) - 1 / a.
    const float rest = part.slope + part.value * (metal::log(x) - digamma(a + 1.0f));
    return -scale * rest - part.value * (scale / a);
  }
  const Sloped part = gamma_series(a, x);
  return (part.slope + part.value * (metal::log(x) - digamma(a + 1.0f))) * (scale / a);
}

// ---- Hurwitz's zeta function --------------------------------------------------------------------

// q^(x - 1) zeta(x, q) for q > 0, x > 1: neither a large x nor a large q leaves the range.
inline float scaled_zeta(float x, float q) {
  float sum = 0.0f, a = q, power = 1.0f;
  for (int i = 0; i < 10 || a < 10.0f; ++i) {
    power = metal::pow(a / q, -x);
    sum += power;
    a += 1.0f;
    if (i > 0 && power < SPECIAL_EPSILON * sum) return sum / q;
  }
  // The tail from a on: its integral, and the series of its derivatives.
  power = metal::pow(a / q, -x);
  sum += 0.5f * power;
  const float numbers[8] = {12.0f,       -720.0f,       30240.0f,       -1209600.0f,
                            47900160.0f, -1.8924376e9f, 7.47242496e10f, -2.9501307e12f};
  float term = power, k = 0.0f;
  for (int i = 0; i < 8; ++i) {
    term *= (x + k) / a;
    sum += term / numbers[i];
    if (metal::abs(term / numbers[i]) < SPECIAL_EPSILON * metal::abs(sum)) break;
    term *= (x + k + 1.0f) / a;
    k += 2.0f;
  }
  return sum / q + a / q * power / (x - 1.0f);
}
// n! zeta(n + 1, q) for q > 0.
inline float factorial_zeta(float n, float q) {
  if (metal::isinf(q)) return 0.0f;
  const float scaled = scaled_zeta(n + 1.0f, q);
  if (n > 2000.0f) {
    const float exponent = n * metal::log(n / q) - n + stirling_series(n);
    return metal::exp(exponent) * metal::sqrt(6.2831853f * n) * scaled;
  }
  // n! / q^n, a product that is kept within the range.
  float product = scaled;
  int shift = 0;
  for (float i = 1.0f; i <= n; i += 1.0f) {
    product *= i / q;
    if (product < 5e-20f) {
      product *= 0x1p64f;
      --shift;
    } else if (product > 2e19f) {
      product *= 0x1p-64f;
      ++shift;
    }
    if (shift < -3 || shift > 40) break;
  }
  for (; shift > 0 && product < INFINITY; --shift) product *= 0x1p64f;
  for (; shift < 0 && product > 0.0f; ++shift) product *= 0x1p-64f;
  return product;
}
inline float positive_zeta(float x, float q) {
  if (metal::isinf(q)) return 0.0f;
  if (metal::isinf(x)) return q < 1.0f ? INFINITY : q == 1.0f ? 1.0f : 0.0f;
  const float scale = metal::pow(q, 1.0f - x);
  return scale == 0.0f ? 0.0f : scaled_zeta(x, q) * scale;
}

// 0: has a value. Else the value at a pole, and the one where none exists.
inline float zeta_undefined(float x, float q) {
  using namespace metal;
  if (x != x || q != q || x < 1.0f) return NAN;
  if (x == 1.0f) return INFINITY;
  if (q > 0.0f) return 0.0f;
  if (x != floor(x)) return NAN;
  // An odd pole has a sign on each side.
  if (q == floor(q)) return fmod(x, 2.0f) == 1.0f ? NAN : INFINITY;
  return 0.0f;
}
// The sum of (q + i)^-x. Below 0 the terms up to it are those of two sums above it.
inline float hurwitz_zeta(float x, float q) {
  const float end = zeta_undefined(x, q);
  if (end != 0.0f) return end;
  if (q > 0.0f) return positive_zeta(x, q);
  if (metal::isinf(x)) return INFINITY;
  const float size = -q, part = size - metal::floor(size);
  const float first = positive_zeta(x, 1.0f - part), second = positive_zeta(x, part);
  const float beyond = positive_zeta(x, size + 1.0f);
  return metal::fmod(x, 2.0f) == 1.0f ? (first - second) + beyond : (first + second) - beyond;
}
// n! (zeta(n + 1, 1 - part) + sign zeta(n + 1, part) - sign zeta(n + 1, far + 1)), part the rest of far: of two parts
// that are no floats the pole that is nearer counts, and between two equal ones the third part.
inline float polygamma_below(float n, float far, float sign) {
  const float part = far - metal::floor(far), beyond = factorial_zeta(n, far + 1.0f);
  const float first = factorial_zeta(n, 1.0f - part), second = factorial_zeta(n, part);
  if (!(metal::isinf(first) && metal::isinf(second)))
    return (first + sign * second) - sign * beyond;
  return part < 0.5f ? sign * second : sign > 0.0f || part > 0.5f ? first : beyond;
}
// The n-th derivative of digamma.
inline float polygamma(float n, float x) {
  if (n < 0.0f || n != metal::floor(n) || n != n || x != x) return NAN;
  if (n == 0.0f) return digamma(x);
  if (metal::isinf(n)) return x < 1.0f ? INFINITY : NAN;
  const bool odd = metal::fmod(n, 2.0f) == 1.0f;
  // An even derivative has another sign on each side of a pole.
  if (x <= 0.0f && x == metal::floor(x)) return odd ? INFINITY : NAN;
  const float size = x > 0.0f ? factorial_zeta(n, x) : polygamma_below(n, -x, odd ? 1.0f : -1.0f);
  return odd ? size : -size;
}

#endif  // METAL_OPS_DEVICE_KERNELS_GAMMA_METAL_H_
