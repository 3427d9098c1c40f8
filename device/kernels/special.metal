// Functions that are sums: the logarithm of the gamma function and its derivatives, the incomplete gamma functions,
// Hurwitz's zeta function, the incomplete beta function.
// Abramowitz and Stegun 6.1, 6.3, 6.4, 6.5; zeta by the formula of Euler and Maclaurin (Knuth, TAOCP 1, 1.2.11.2).

#include "device/kernels/elementwise.metal.h"
#include "kernels/msl/exp_log.h"

using namespace metal;

// log(gamma(1 + a)) for a > 0, by Stirling's series from 8 on.
inline float log_factorial(float a) {
  float product = 1.0f;
  float z = a + 1.0f;
  while (z < 8.0f) {
    product *= z;
    z += 1.0f;
  }
  const float r = 1.0f / z, square = r * r;
  const float rest = r * (0.083333333f + square * (-0.0027777778f + square * 7.9365079e-4f));
  return (z - 0.5f) * log(z) - z + 0.91893853f + rest - log(product);
}

// x^a exp(-x) / gamma(1 + a). For large a by how far x is from it: the terms would cancel.
inline float gamma_term(float a, float x) {
  if (a < 8.0f) return exp(a * log(x) - x - log_factorial(a));
  const float far = (x - a) / a;
  float exponent;
  if (abs(far) < 0.125f) {
    // log(1 + far) - far.
    float sum = 0.0f;
    for (int i = 9; i >= 2; --i) sum = (i % 2 == 0 ? -1.0f : 1.0f) / float(i) + far * sum;
    exponent = a * far * far * sum;
  } else {
    exponent = a * (log(x / a) - far);
  }
  const float r = 1.0f / a, square = r * r;
  const float rest = r * (0.083333333f + square * (-0.0027777778f + square * 7.9365079e-4f));
  return exp(exponent - rest) / sqrt(6.2831853f * a);
}

#define SPECIAL_EPSILON 5.9604645e-8f
#define SPECIAL_TERMS 2000

// The lower function's series, of x up to a.
inline float gamma_series(float a, float x) {
  float term = 1.0f, sum = 1.0f, r = a;
  for (int i = 0; i < SPECIAL_TERMS && term > SPECIAL_EPSILON * sum; ++i) {
    r += 1.0f;
    term *= x / r;
    sum += term;
  }
  return sum * gamma_term(a, x);
}

// The upper function's continued fraction, of x from a on, by Lentz's method.
inline float gamma_fraction(float a, float x) {
  const float tiny = 1e-30f;
  float b = x + 1.0f - a;
  float c = 1.0f / tiny;
  float d = 1.0f / (abs(b) < tiny ? tiny : b);
  float h = d;
  for (int i = 1; i < SPECIAL_TERMS; ++i) {
    const float n = -float(i) * (float(i) - a);
    b += 2.0f;
    d = n * d + b;
    d = 1.0f / (abs(d) < tiny ? tiny : d);
    c = b + n / c;
    c = abs(c) < tiny ? tiny : c;
    const float change = d * c;
    h *= change;
    if (abs(change - 1.0f) < SPECIAL_EPSILON * 2.0f) break;
  }
  return h * a * gamma_term(a, x);
}

inline bool gamma_undefined(float a, float x) {
  return a != a || x != x || x < 0.0f || a <= 0.0f || (isinf(a) && isinf(x));
}

struct Igamma {
  float operator()(float a, float x) const {
    if (gamma_undefined(a, x)) return NAN;
    if (x == 0.0f || isinf(a)) return 0.0f;
    if (isinf(x)) return 1.0f;
    return x > 1.0f && x > a ? 1.0f - gamma_fraction(a, x) : gamma_series(a, x);
  }
};
struct Igammac {
  float operator()(float a, float x) const {
    if (gamma_undefined(a, x)) return NAN;
    if (x == 0.0f || isinf(a)) return 1.0f;
    if (isinf(x)) return 0.0f;
    return x > 1.0f && x > a ? gamma_fraction(a, x) : 1.0f - gamma_series(a, x);
  }
};

// The sum of (q + i)^-x.
inline float hurwitz_zeta(float x, float q) {
  if (x == 1.0f) return INFINITY;
  if (!(x > 1.0f) || q != q) return NAN;
  if (q <= 0.0f) {
    if (q == floor(q)) return INFINITY;
    if (x != floor(x)) return NAN;
  }
  const bool odd = fmod(x, 2.0f) == 1.0f;
  float sum = 0.0f, a = q, power = 0.0f;
  for (int i = 0; i < 10 || a < 10.0f; ++i) {
    const float size = pow(abs(a), -x);
    power = a < 0.0f && odd ? -size : size;
    sum += power;
    if (i > 0 && abs(power) < SPECIAL_EPSILON * abs(sum) && a > 0.0f) return sum;
    a += 1.0f;
  }
  // What is left from a on: its integral, and the series of its derivatives.
  power = pow(a, -x);
  sum += a * power / (x - 1.0f) + 0.5f * power;
  const float numbers[8] = {12.0f,       -720.0f,       30240.0f,       -1209600.0f,
                            47900160.0f, -1.8924376e9f, 7.47242496e10f, -2.9501307e12f};
  float factor = 1.0f, k = 0.0f;
  for (int i = 0; i < 8; ++i) {
    factor *= x + k;
    power /= a;
    const float term = factor * power / numbers[i];
    sum += term;
    if (abs(term) < SPECIAL_EPSILON * abs(sum)) break;
    factor *= x + k + 1.0f;
    power /= a;
    k += 2.0f;
  }
  return sum;
}
struct Zeta {
  float operator()(float x, float q) const { return hurwitz_zeta(x, q); }
};

// The derivative of log(gamma(x)).
inline float digamma(float x) {
  float reflected = 0.0f;
  if (x <= 0.0f) {
    if (x == floor(x)) return NAN;
    reflected = 3.14159265f / tan(3.14159265f * (x - rint(x)));
    x = 1.0f - x;
  }
  float below = 0.0f;
  while (x < 10.0f) {
    below += 1.0f / x;
    x += 1.0f;
  }
  const float r = 1.0f / (x * x);
  const float series = r * (0.083333333f - r * (0.0083333333f - r * 0.003968254f));
  return log(x) - 0.5f / x - series - below - reflected;
}

struct Polygamma {
  float operator()(float n, float x) const {
    if (n < 0.0f || n != floor(n)) return NAN;
    if (n == 0.0f) return digamma(x);
    float factorial = 1.0f;
    for (float i = 2.0f; i <= n && factorial < INFINITY; i += 1.0f) factorial *= i;
    const float size = factorial * hurwitz_zeta(n + 1.0f, x);
    return fmod(n, 2.0f) == 1.0f ? size : -size;
  }
};

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
inline float log_gamma(float x) {
  if (x != x) return x;
  if (isinf(x) || (x <= 0.0f && x == floor(x))) return INFINITY;
  float reflected = 0.0f, sign = 1.0f;
  if (x < 0.0f) {
    // gamma(x) gamma(1 - x) = pi / sin(pi x), by how far x is from a whole number.
    reflected = log(3.14159265f / sin(3.14159265f * abs(x - rint(x))));
    sign = -1.0f;
    x = 1.0f - x;
  }
  float size;
  if (x < 0.5f) {
    size = log_gamma_near_2(x) - log(x * (x + 1.0f));
  } else if (x < 1.5f) {
    size = log_gamma_near_2(x - 1.0f) - log(x);
  } else {
    size = x < 2.5f ? log_gamma_near_2(x - 2.0f) : log_factorial(x - 1.0f);
  }
  return reflected + sign * size;
}
struct Lgamma {
  float operator()(float x) const { return log_gamma(x); }
};
struct Digamma {
  float operator()(float x) const { return digamma(x); }
};
struct Xlog1py {
  float operator()(float a, float b) const {
    return a == 0.0f ? 0.0f : a * (b < -1.0f ? NAN : precise_log1p(b));
  }
};

ELEMENTWISE_1("lgamma", Lgamma)
ELEMENTWISE_1("digamma", Digamma)
BINARY_FLOATS("xlog1py", Xlog1py)
BINARY("igamma", Igamma, float)
BINARY("igammac", Igammac, float)
BINARY("zeta", Zeta, float)
BINARY("polygamma", Polygamma, float)

// What Stirling's formula lacks: log(a!) - ((a + 1/2) log(a) - a + log(2 pi) / 2).
inline float stirling_rest(float a) {
  if (a < 8.0f) return log_factorial(a) - ((a + 0.5f) * log(a) - a + 0.91893853f);
  const float r = 1.0f / a, square = r * r;
  return r * (0.083333333f + square * (-0.0027777778f + square * 7.9365079e-4f));
}
// a log(a / b) + b - a, which cancels where they are near.
inline float deviance(float a, float b) {
  const float far = (a - b) / b;
  if (abs(far) >= 0.125f) return a * log(a / b) + b - a;
  // b ((1 + far) log(1 + far) - far).
  float sum = 0.0f;
  for (int i = 10; i >= 2; --i) {
    sum = (i % 2 == 0 ? 1.0f : -1.0f) / float(i * (i - 1)) + far * sum;
  }
  return b * far * far * sum;
}

// x^a (1 - x)^b / (a B(a, b)), by the binomial distribution's density (C. Loader 2000, "Fast and Accurate
// Computation of Binomial Probabilities").
inline float beta_term(float a, float b, float x) {
  const float n = a + b;
  const float exponent = stirling_rest(n) - stirling_rest(a) - stirling_rest(b) -
                         deviance(a, n * x) - deviance(b, n * (1.0f - x));
  return exp(exponent) * sqrt(n / (6.2831853f * a * b)) * (b / n);
}

// The continued fraction (Numerical Recipes, 6.4), by Lentz's method; of x up to (a + 1) / (a + b + 2).
inline float beta_fraction(float a, float b, float x) {
  const float tiny = 1e-30f;
  float c = 1.0f, d = 1.0f - (a + b) * x / (a + 1.0f);
  d = 1.0f / (abs(d) < tiny ? tiny : d);
  float h = d;
  for (int i = 1; i < SPECIAL_TERMS; ++i) {
    const float m = float(i), twice = a + 2.0f * m;
    const float even = m * (b - m) * x / ((twice - 1.0f) * twice);
    d = 1.0f + even * d;
    d = 1.0f / (abs(d) < tiny ? tiny : d);
    c = 1.0f + even / c;
    c = abs(c) < tiny ? tiny : c;
    h *= d * c;
    const float odd = -(a + m) * (a + b + m) * x / (twice * (twice + 1.0f));
    d = 1.0f + odd * d;
    d = 1.0f / (abs(d) < tiny ? tiny : d);
    c = 1.0f + odd / c;
    c = abs(c) < tiny ? tiny : c;
    const float change = d * c;
    h *= change;
    if (abs(change - 1.0f) < SPECIAL_EPSILON * 2.0f) break;
  }
  return h;
}

// Of each a step: 0 for a single value. Grid: elements.
kernel void betainc(device const float* a_values [[buffer(0)]],
                    device const float* b_values [[buffer(1)]],
                    device const float* x_values [[buffer(2)]], device float* out [[buffer(3)]],
                    constant uint* steps [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  const float a = a_values[i * steps[0]], b = b_values[i * steps[1]], x = x_values[i * steps[2]];
  float result;
  if (!(a > 0.0f && b > 0.0f && x >= 0.0f && x <= 1.0f) || isinf(a) || isinf(b)) {
    result = NAN;
  } else if (x == 0.0f || x == 1.0f) {
    result = x;
  } else if (x < (a + 1.0f) / (a + b + 2.0f)) {
    result = beta_term(a, b, x) * beta_fraction(a, b, x);
  } else {
    result = 1.0f - beta_term(b, a, 1.0f - x) * beta_fraction(b, a, 1.0f - x);
  }
  out[i] = result;
}
