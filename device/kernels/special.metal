// Functions that are sums, of gamma.metal.h, the incomplete beta function, and inverses of the error function.

#include "device/kernels/elementwise.metal.h"
#include "device/kernels/erf_inverse.metal.h"
#include "device/kernels/gamma.metal.h"
#include "kernels/msl/exp_log.h"

using namespace metal;

struct Igamma {
  float operator()(float a, float x) const {
    if (x == 0.0f && a == a) return 0.0f;
    if (gamma_undefined(a, x)) return NAN;
    if (isinf(a)) return 0.0f;
    return isinf(x) ? 1.0f : incomplete_gamma(a, x, /*upper=*/false);
  }
};
struct Igammac {
  float operator()(float a, float x) const {
    if (gamma_undefined(a, x)) return NAN;
    if (x == 0.0f || isinf(a)) return 1.0f;
    return isinf(x) ? 0.0f : incomplete_gamma(a, x, /*upper=*/true);
  }
};
struct IgammaGradA {
  float operator()(float a, float x) const {
    if (x == 0.0f && a == a) return 0.0f;
    if (gamma_undefined(a, x)) return NAN;
    if (isinf(a) || isinf(x)) return 0.0f;
    const float term = gamma_term(a, x);
    return term == 0.0f ? 0.0f : gamma_slope(a, x, a) * term;
  }
};
// The derivative of a gamma distribution's number by its shape: the density's exponential is in both parts
// of the quotient.
struct RandomGammaGrad {
  float operator()(float alpha, float sample) const {
    if (gamma_undefined(alpha, sample) || isinf(alpha)) return NAN;
    if (isinf(sample)) return sample;
    return sample == 0.0f ? 0.0f : -gamma_slope(alpha, sample, sample);
  }
};
struct Zeta {
  float operator()(float x, float q) const { return hurwitz_zeta(x, q); }
};
struct Polygamma {
  float operator()(float n, float x) const { return polygamma(n, x); }
};
struct Lgamma {
  float operator()(float x) const { return log_gamma(x); }
};
struct Digamma {
  float operator()(float x) const { return digamma(x); }
};
struct Erfinv {
  float operator()(float x) const { return inverse_error_function(x); }
};
struct Ndtri {
  float operator()(float x) const { return normal_quantile(x); }
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
BINARY("igamma_grad_a", IgammaGradA, float)
BINARY("random_gamma_grad", RandomGammaGrad, float)
INSTANTIATE_KERNEL("erfinv_float", elementwise_1, Erfinv, float)
INSTANTIATE_KERNEL("ndtri_float", elementwise_1, Ndtri, float)

// The remainder of Stirling's formula: log(a!) - ((a + 1/2) log(a) - a + log(2 pi) / 2).
inline float stirling_rest(float a) {
  if (a < 8.0f) return log_factorial(a) - ((a + 0.5f) * log(a) - a + 0.91893853f);
  return stirling_series(a);
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

// Steps of each: 0 for a single value. Grid: elements.
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
