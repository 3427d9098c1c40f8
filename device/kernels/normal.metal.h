// Two normal numbers of two uniform ones, with the bits that TensorFlow's CPU kernels have on Linux.
//
// There, logf and sincosf are glibc's: since 2.28 those of Arm's optimized routines, polynomials in double that are rounded
// once, and not always to the nearest float. Here the same polynomials are sums of two floats, which round to the same
// float for every argument that there is: 2^23 of each, and tests/msl/test_normal.py goes through them. Wants a compiler
// that neither reassociates nor contracts, as all shaders here are compiled (docs/build.md).

#ifndef METAL_OPS_DEVICE_KERNELS_NORMAL_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_NORMAL_METAL_H_

#include <metal_stdlib>

// high + low, where `low` is a few units in the last place of `high` at most.
struct FloatPair {
  float high, low;
};

inline FloatPair float_pair(float high, float low) {
  FloatPair pair;
  pair.high = high;
  pair.low = low;
  return pair;
}

// a + b, exactly where |a| >= |b| or the sum is a float.
inline FloatPair pair_sum(float a, float b) {
  const float sum = a + b;
  return float_pair(sum, b - (sum - a));
}

inline FloatPair pair_product(FloatPair a, FloatPair b) {
  const float product = a.high * b.high;
  const float low = metal::fma(a.high, b.high, -product);
  return float_pair(product, metal::fma(a.low, b.high, metal::fma(a.high, b.low, low)));
}

inline FloatPair pair_square(FloatPair a) {
  const float square = a.high * a.high;
  const float low = metal::fma(a.high, a.high, -square);
  return float_pair(square, metal::fma(a.high + a.high, a.low, low));
}

// a b + (high + low), where a b is the smaller: a step of Horner's.
inline FloatPair pair_step(FloatPair a, FloatPair b, float high, float low) {
  const FloatPair product = pair_product(a, b), sum = pair_sum(high, product.high);
  return float_pair(sum.high, sum.low + (low + product.low));
}

// The first one, whose product is so small that rounded to a float it is exact enough.
inline FloatPair pair_first(float a, FloatPair b, float high, float low) {
  const FloatPair sum = pair_sum(high, a * b.high);
  return float_pair(sum.high, sum.low + low);
}

inline float pair_value(FloatPair a) { return a.high + a.low; }

// ---- the functions

// 1 / c as a float, and log(c) in two, of a c in each of 16 intervals of mantissas. glibc's 1 / c is a double; the
// remainder that float drops is in log(c). The last float of row 8 is 2^-48 less than that: one argument is as near as
// 2^-50 to where rounding changes.
constant float kOfIntervals[16][3] = {
    {0x1.661ec8p0f, -0x1.57bf7ap-2f, 0x1.c6e5c4p-27f},
    {0x1.571ed4p0f, -0x1.2bef08p-2f, -0x1.f724d2p-28f},
    {0x1.4953ap0f, -0x1.01eaeap-2f, -0x1.c4d8c8p-27f},
    {0x1.3c995cp0f, -0x1.b31d9p-3f, -0x1.2b79b4p-28f},
    {0x1.30d19p0f, -0x1.6574ecp-3f, 0x1.2e7d9cp-28f},
    {0x1.25e228p0f, -0x1.1aa2bep-3f, -0x1.447edep-28f},
    {0x1.1bb4a4p0f, -0x1.a4e764p-4f, 0x1.a721f8p-31f},
    {0x1.12359p0f, -0x1.1973d4p-4f, -0x1.4653f6p-32f},
    {0x1.0953f4p0f, -0x1.252f4p-5f, -0x1.e34684p-31f},
    {0x1p0f, 0.0f, 0.0f},
    {0x1.e608dp-1f, 0x1.aa5aa4p-5f, -0x1.4eb864p-30f},
    {0x1.ca4b32p-1f, 0x1.c5e53ap-4f, 0x1.5bc7b2p-32f},
    {0x1.b20366p-1f, 0x1.526e54p-3f, 0x1.d43692p-28f},
    {0x1.9c2d16p-1f, 0x1.bc2862p-3f, -0x1.a4e618p-32f},
    {0x1.886e6p-1f, 0x1.1058bep-2f, -0x1.ca36a4p-27f},
    {0x1.767ddp-1f, 0x1.404304p-2f, -0x1.5e55fap-28f},
};

// logf(x), where x < 1 is no subnormal number: k ln 2 + log(c) + log1p(r), where x = 2^k c (1 + r).
inline float library_log(float x) {
  const int bits = as_type<int>(x), above = bits - 0x3f330000;
  const uint i = uint(above) >> 19 & 15u;
  const float k = float(above >> 23), z = as_type<float>(bits - (above & ~0x7fffff));
  const float c = kOfIntervals[i][0], log_c = kOfIntervals[i][1];
  const float quotient = z * c;
  const FloatPair r = pair_sum(quotient - 1.0f, metal::fma(z, c, -quotient));
  const float powers = k * 0x1.62e43p-1f;
  const float powers_low = metal::fma(k, -0x1.05c61p-29f, metal::fma(k, 0x1.62e43p-1f, -powers));
  const FloatPair base = pair_sum(powers, log_c), sum = pair_sum(base.high, r.high);
  const float low = (sum.low + r.low) + (base.low + (powers_low + kOfIntervals[i][2]));
  FloatPair p = pair_first(-0x1.00ea34p-2f, r, 0x1.5575bp-2f, 0x1.7c016ep-27f);
  p = pair_step(p, r, -0x1.fffffp-2f, 0x1.beb7dcp-27f);
  return pair_value(pair_step(p, pair_square(r), sum.high, low));
}

// sincosf(x), 0 <= x <= 2 pi: polynomials of r, where x = n pi / 2 + r. n and all but the last part of pi / 2 have few
// enough bits for exact products.
inline void library_sincos(float x, thread float& sine, thread float& cosine) {
  const float shifted = metal::fma(x, 0x1.45f306p-1f, 12582912.0f), n = shifted - 12582912.0f;
  const uint quadrant = as_type<uint>(shifted);
  FloatPair r = pair_sum(metal::fma(-n, 0x1.921fb6p0f, x), n * 0x1.777a6p-25f);
  r.low = metal::fma(-n, 0x1.8p-48f, r.low);
  const FloatPair z = pair_square(r);
  FloatPair s = float_pair(-0x1.994eb4p-13f, 0x1.11661cp-38f);
  s = pair_step(s, z, 0x1.11076p-7f, 0x1.48c2fp-33f);
  s = pair_step(s, z, -0x1.555546p-3f, 0x1.9a968p-29f);
  const float odd = pair_value(pair_step(s, pair_product(r, z), r.high, r.low));
  FloatPair c = pair_first(0x1.99343p-16f, z, -0x1.6c087ep-10f, -0x1.1208b8p-35f);
  c = pair_step(c, z, 0x1.55553ep-5f, 0x1.068f18p-33f);
  c = pair_step(c, z, -0.5f, 0x1.79cef2p-29f);
  const float even = pair_value(pair_step(c, z, 1.0f, 0.0f));
  const bool swap = (quadrant & 1u) != 0;
  const float first = swap ? even : odd, second = swap ? odd : even;
  sine = (quadrant & 2u) != 0 ? -first : first;
  cosine = ((quadrant + 1u) & 2u) != 0 ? -second : second;
}

// [0, 1): a mantissa under the exponent of 1 is in [1, 2).
inline float unit_float(uint bits) {
  return as_type<float>((bits & 0x7fffffu) | 0x3f800000u) - 1.0f;
}

// 2 pi u, as rounded from double.
inline float full_angle(float u) { return metal::fma(u, 6.2831855f, u * -1.7484555e-7f); }

// Box and Muller 1958, "A note on the generation of random normal deviates".
inline float2 normal_pair(uint a, uint b) {
  const float length = metal::sqrt(-2.0f * library_log(metal::max(unit_float(a), 1.0e-7f)));
  float sine, cosine;
  library_sincos(full_angle(unit_float(b)), sine, cosine);
  return float2(sine * length, cosine * length);
}

#endif  // METAL_OPS_DEVICE_KERNELS_NORMAL_METAL_H_
