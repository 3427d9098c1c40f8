// The C library's float functions for GPUs, where no C library is: the names of math.h. Some are the
// CPU's, too: those that become vector code, which calls of the C library do not. Where an exact
// answer is cheap in double precision it is used (the result is then rounded once); exp, log, sin and
// cos, which shaders call most, stay in float. Plain C++: tests compare it with the C library on the
// CPU.
#pragma once

namespace _msl {
namespace gpu {

inline float float_of(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline unsigned bits_of(float v) { return __builtin_bit_cast(unsigned, v); }
constexpr float kInfinity = __builtin_inff(), kNaN = __builtin_nanf("");

// A negative constant: in shaders a literal behind a minus is a float's.
constexpr double minus(double v) { return -v; }

// ---- in double, for finite arguments in the range that floats can ask for
inline double scale(double v, int exponent) {  // |exponent| <= 1022
  return v * __builtin_bit_cast(double, (unsigned long)(exponent + 1023) << 52);
}
// 2^t; far outside of float's range it is some value that rounds to 0 or infinity.
inline double exp2_wide(double t) {
  t = t < -1000 ? -1000 : t > 1000 ? 1000 : t;  // NaN stays
  const double n = __builtin_rint(t), r = t - n;
  double p = 7.12498149368912e-09;
  p = __builtin_fma(p, r, 1.0206986189587042e-07);
  p = __builtin_fma(p, r, 1.3215176295489073e-06);
  p = __builtin_fma(p, r, 1.5252667665777153e-05);
  p = __builtin_fma(p, r, 0.00015403530860158554);
  p = __builtin_fma(p, r, 0.0013333558208620255);
  p = __builtin_fma(p, r, 0.009618129107396622);
  p = __builtin_fma(p, r, 0.05550410866461106);
  p = __builtin_fma(p, r, 0.24022650695910275);
  p = __builtin_fma(p, r, 0.6931471805599457);
  return t == t ? scale(__builtin_fma(p, r, 1.0), int(n)) : t;
}
inline double exp_wide(double v) { return exp2_wide(v * 0x1.71547652b82fep+0); }
// log2(v)
inline double log2_wide(double v) {
  if (!(v > 0)) return v == 0 ? -double(kInfinity) : double(kNaN);
  if (v == double(kInfinity)) return v;
  const unsigned long bits = __builtin_bit_cast(unsigned long, v);
  // The mantissa in [sqrt(1/2), sqrt(2)).
  const long shifted = long(bits) - 0x3fe6a09e667f3bcdl;
  const long exponent = shifted >> 52;
  const double m = __builtin_bit_cast(double, bits - ((unsigned long)exponent << 52));
  const double s = (m - 1) / (m + 1), z = s * s;
  double p = 0.0831191438206518;
  p = __builtin_fma(p, z, 0.09070025473428989);
  p = __builtin_fma(p, z, 0.11111432910412178);
  p = __builtin_fma(p, z, 0.14285712051329105);
  p = __builtin_fma(p, z, 0.20000000005665575);
  p = __builtin_fma(p, z, 0.33333333333331);
  return __builtin_fma(2 * __builtin_fma(p * z, s, s), 0x1.71547652b82fep+0, double(exponent));
}
constexpr double kLn2 = 0x1.62e42fefa39efp-1, kPi = 0x1.921fb54442d18p+1;
inline double log_wide(double v) { return log2_wide(v) * kLn2; }
inline double atan2_wide(double y, double x) {
  const double a = __builtin_fabs(y), b = __builtin_fabs(x);
  const double high = a > b ? a : b, low = a > b ? b : a;
  double t = high == 0 ? 0 : low == high ? 1 : low / high;
  const bool upper = t > 0.41421356237309503;  // tan(pi / 8)
  if (upper) t = (t - 1) / (t + 1);
  const double z = t * t;
  double p = minus(0.027292130912588197);
  p = __builtin_fma(p, z, 0.05172957585709225);
  p = __builtin_fma(p, z, minus(0.06552072855941385));
  p = __builtin_fma(p, z, 0.07681216822978452);
  p = __builtin_fma(p, z, minus(0.09090269956595695));
  p = __builtin_fma(p, z, 0.11111090270101681);
  p = __builtin_fma(p, z, minus(0.1428571394391245));
  p = __builtin_fma(p, z, 0.19999999997837642);
  p = __builtin_fma(p, z, minus(0.3333333333333111));
  double angle = __builtin_fma(p * z, t, t);
  if (upper) angle += kPi / 4;
  if (a > b) angle = kPi / 2 - angle;
  if (__builtin_signbit(x)) angle = kPi - angle;
  if (a != a || b != b) angle = double(kNaN);
  return __builtin_copysign(angle, y);
}

// ---- sine and cosine
// x = quadrant * pi / 2 + the result, which is in about [-pi / 4, pi / 4]. |x| is finite.
inline double reduce_angle(float x, int* quadrant) {
  const float size = __builtin_fabsf(x);
  if (size < 0x1p28f) {
    const double n = __builtin_rint(double(x) * 0x1.45f306dc9c883p-1);
    *quadrant = int(n);
    return __builtin_fma(-n, 0x1.1a62633145c07p-54,
                         __builtin_fma(-n, 0x1.921fb54442d18p+0, double(x)));
  }
  // 2 / pi in words of 32 bits after the point. Its bits that stand for whole turns of x's exponent
  // are skipped; the next 96 times the mantissa leave two bits of quarter turns and their fraction.
  constexpr unsigned kWords[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599,
                                 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a};
  const unsigned bits = bits_of(size);
  const unsigned long mantissa = (bits & 0x7fffff) | 0x800000;
  const unsigned first = (bits >> 23) - 152, word = first / 32, shift = first % 32;
  unsigned window[3];
  for (unsigned i = 0; i < 3; ++i) {
    const unsigned long pair = (unsigned long)kWords[word + i] << 32 | kWords[word + i + 1];
    window[i] = unsigned(pair >> (32 - shift));
  }
  const unsigned long middle = mantissa * window[1] + (mantissa * window[2] >> 32);
  const unsigned long high = mantissa * window[0] + (middle >> 32);
  const unsigned long turns = high << 32 | (middle & 0xffffffff);  // 2.62 fixed point, modulo 4
  const long part = long(turns << 2);                              // in [-1/2, 1/2)
  const int whole = int(turns >> 62) + (part < 0);
  *quadrant = x < 0 ? -whole : whole;
  const double angle = double(part) * (0x1p-64 * kPi / 2);
  return x < 0 ? -angle : angle;
}
inline float sin_near(float r) {
  const float z = r * r;
  float p = 0x1.6dbe36p-19f;
  p = __builtin_fmaf(p, z, -0x1.a013a8p-13f);
  p = __builtin_fmaf(p, z, 0x1.11110ep-7f);
  p = __builtin_fmaf(p, z, -0x1.555556p-3f);
  return __builtin_fmaf(p * z, r, r);
}
inline float cos_near(float r) {
  const float z = r * r;
  float p = -0x1.252466p-22f;
  p = __builtin_fmaf(p, z, 0x1.a015c4p-16f);
  p = __builtin_fmaf(p, z, -0x1.6c16c0p-10f);
  p = __builtin_fmaf(p, z, 0x1.555556p-5f);
  return __builtin_fmaf(p, z * z, __builtin_fmaf(-0.5f, z, 1.0f));
}
inline float circular(float x, int ahead) {
  int quadrant;
  float r;
  if (__builtin_fabsf(x) < 32768.0f) {
    const float n = __builtin_rintf(x * 0x1.45f306p-1f);
    quadrant = int(n);
    r = __builtin_fmaf(-n, 0x1.921fb6p+0f, x);
    r = __builtin_fmaf(-n, -0x1.777a5cp-25f, r);
    r = __builtin_fmaf(-n, -0x1.ee59dap-50f, r);
  } else {
    if (!__builtin_isfinite(x)) return kNaN;
    r = float(reduce_angle(x, &quadrant));
  }
  quadrant += ahead;
  const float v = quadrant & 1 ? cos_near(r) : sin_near(r);
  return quadrant & 2 ? -v : v;
}
inline float sin(float x) { return x == 0 ? x : circular(x, 0); }
inline float cos(float x) { return circular(x, 1); }
// The same without branches, for processors, whose loops with it become vector code: in double, of
// which they have half as many a cycle as of float, and GPUs a fraction.
inline float straight_circular(float x, int ahead) {
  // 2 / pi times 2^24, 2^48, ..., less whole turns, and the remainders that double drops from them.
  constexpr float kFrom[] = {0x1p47f, 0x1p71f, 0x1p95f, 0x1p119f};
  constexpr float kScale[] = {0x1p-24f, 0x1p-48f, 0x1p-72f, 0x1p-96f};
  constexpr double kHigh[] = {0x1.b727220a94fe1p+1, 0x1.529fc2757d1f5p-4, 0x1.3abe8fa9a6ee0p-3,
                              0x1.f534ddc0db629p+0};
  constexpr double kLow[] = {0x1.d5f47d4d37703p-54, 0x1.a6ee06db14acdp-59, 0x1.b6c52b3278872p-57,
                             0x1.664f10e4107f9p-54};
  float scale = 1.0f;
  double high = 0x1.45f306dc9c883p-1;
  double low = minus(0x1.6b01ec5417056p-55);
  for (int i = 0; i < 4; ++i) {
    const bool far = __builtin_fabsf(x) >= kFrom[i];
    scale = far ? kScale[i] : scale;
    high = far ? kHigh[i] : high;
    low = far ? kLow[i] : low;
  }
  const double v = double(x * scale), p = v * high, n = __builtin_rint(p);
  const double turn = (p - n) + __builtin_fma(v, low, __builtin_fma(v, high, -p));
  const int quadrant = int(__builtin_bit_cast(unsigned long, n + 0x1.8p52)) + ahead;
  const float r = float(turn * (kPi / 2)), sine = sin_near(r), cosine = cos_near(r);
  const float value = quadrant & 1 ? cosine : sine;
  return quadrant & 2 ? -value : value;
}
inline float straight_sin(float x) { return x == 0 ? x : straight_circular(x, 0); }
inline float straight_cos(float x) { return straight_circular(x, 1); }
inline float tan(float x) {
  if (!__builtin_isfinite(x)) return kNaN;
  if (x == 0) return x;
  int quadrant;
  const double r = reduce_angle(x, &quadrant), z = r * r;
  // Taylor's series: |r| <= pi / 4, and nine terms leave 1e-13.
  double s = 2.8114572543455206e-15, c = 4.779477332387385e-14;
  s = __builtin_fma(s, z, minus(7.647163731819816e-13)), c = __builtin_fma(c, z, minus(1.1470745597729725e-11));
  s = __builtin_fma(s, z, 1.6059043836821613e-10), c = __builtin_fma(c, z, 2.08767569878681e-9);
  s = __builtin_fma(s, z, minus(2.505210838544172e-8)), c = __builtin_fma(c, z, minus(2.755731922398589e-7));
  s = __builtin_fma(s, z, 2.7557319223985893e-6), c = __builtin_fma(c, z, 2.48015873015873e-5);
  s = __builtin_fma(s, z, minus(1.984126984126984e-4)), c = __builtin_fma(c, z, minus(1.388888888888889e-3));
  s = __builtin_fma(s, z, 8.333333333333333e-3), c = __builtin_fma(c, z, 4.1666666666666664e-2);
  s = __builtin_fma(s, z, minus(1.6666666666666666e-1)), c = __builtin_fma(c, z, -0.5);
  s = __builtin_fma(s * z, r, r), c = __builtin_fma(c, z, 1.0);
  return float(quadrant & 1 ? -c / s : s / c);
}

// ---- exponentials and logarithms
// exp, exp2 and log have no branches, so that loops with them become vector code.
inline float power_of_two(float v, float n) {  // v 2^n, |n| <= 151
  // In two steps: 2^n alone may be no float.
  const int whole = int(bits_of(n + 0x1.8p23f) - bits_of(0x1.8p23f)), half = whole >> 1;
  return v * float_of(unsigned(half + 127) << 23) * float_of(unsigned(whole - half + 127) << 23);
}
inline float exp(float x) {
  // Beyond it is 0, or infinity; NaN stays.
  const float y = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
  const float n = __builtin_rintf(y * 0x1.715476p+0f);
  float r = __builtin_fmaf(-n, 0x1.62e430p-1f, y);
  r = __builtin_fmaf(-n, -0x1.05c610p-29f, r);
  float p = 0x1.6d7612p-10f;
  p = __builtin_fmaf(p, r, 0x1.120c04p-7f);
  p = __builtin_fmaf(p, r, 0x1.5554b8p-5f);
  p = __builtin_fmaf(p, r, 0x1.5554dcp-3f);
  p = __builtin_fmaf(p, r, 0.5f);
  return power_of_two(__builtin_fmaf(p, r * r, r) + 1.0f, n);
}
inline float exp2(float x) {
  const float y = x > 128.0f ? 128.0f : x < -151.0f ? -151.0f : x;
  const float n = __builtin_rintf(y), r = y - n;
  float p = 0x1.00dc4ap-16f;
  p = __builtin_fmaf(p, r, 0x1.444004p-13f);
  p = __builtin_fmaf(p, r, 0x1.5d874cp-10f);
  p = __builtin_fmaf(p, r, 0x1.3b2a1cp-7f);
  p = __builtin_fmaf(p, r, 0x1.c6b08ep-5f);
  p = __builtin_fmaf(p, r, 0x1.ebfbe0p-3f);
  p = __builtin_fmaf(p, r, 0x1.62e430p-1f);
  return power_of_two(__builtin_fmaf(p, r, 1.0f), n);
}
inline float exp10(float x) { return float(exp2_wide(double(x) * 3.321928094887362)); }
inline float log(float x) {
  const bool small = x < 0x1p-126f;
  const unsigned bits = bits_of(small ? x * 0x1p24f : x);
  const int e = int(bits - 0x3f3504f3) >> 23;  // the mantissa in [sqrt(1/2), sqrt(2))
  const float exponent = float(small ? e - 24 : e);
  const float f = float_of(bits - (unsigned(e) << 23)) - 1.0f;
  float p = 0x1.1b40e4p-4f;
  p = __builtin_fmaf(p, f, -0x1.e2e918p-4f);
  p = __builtin_fmaf(p, f, 0x1.e6512ep-4f);
  p = __builtin_fmaf(p, f, -0x1.fb434ep-4f);
  p = __builtin_fmaf(p, f, 0x1.2332b8p-3f);
  p = __builtin_fmaf(p, f, -0x1.5562e2p-3f);
  p = __builtin_fmaf(p, f, 0x1.99a546p-3f);
  p = __builtin_fmaf(p, f, -0x1.ffffeep-3f);
  p = __builtin_fmaf(p, f, 0x1.555546p-2f);
  const float square = f * f;
  float low = __builtin_fmaf(exponent, -0x1.05c610p-29f, p * square * f);
  low = __builtin_fmaf(square, -0.5f, low);
  const float v = __builtin_fmaf(exponent, 0x1.62e430p-1f, f + low);
  return x > 0 ? (x < kInfinity ? v : x) : x == 0 ? -kInfinity : kNaN;
}
inline float log2(float x) { return float(log2_wide(double(x))); }
inline float log10(float x) { return float(log2_wide(double(x)) * 0x1.34413509f79ffp-2); }
inline float pow(float x, float y) {
  if (x == 1 || y == 0) return 1.0f;
  if (x != x || y != y) return kNaN;
  const float size = __builtin_fabsf(x);
  if (size == 1 && __builtin_isinf(y)) return 1.0f;
  const bool whole = __builtin_floorf(y) == y;
  const bool odd = whole && __builtin_fabsf(y) < 0x1p24f && (int(y) & 1);
  if (x < 0 && !whole && size != kInfinity) return kNaN;
  const float v = float(exp2_wide(double(y) * log2_wide(double(size))));
  return odd && __builtin_signbit(x) ? -v : v;
}

// ---- hyperbolic functions and inverses. Near 0 the first terms of the series.
inline float sinh(float x) {
  const double v = double(x);
  if (__builtin_fabsf(x) < 1e-3f) return float(__builtin_fma(v * v * v, 1.0 / 6, v));
  return float(0.5 * (exp_wide(v) - exp_wide(-v)));
}
inline float cosh(float x) { return float(0.5 * (exp_wide(double(x)) + exp_wide(-double(x)))); }
inline float tanh(float x) {
  const double v = double(x);
  if (__builtin_fabsf(x) < 1e-3f) return float(__builtin_fma(v * v * v, -1.0 / 3, v));
  const double e = exp_wide(2 * v);
  return x > 20 ? 1.0f : float((e - 1) / (e + 1));
}
inline float asinh(float x) {
  const double v = __builtin_fabs(double(x));
  if (v < 1e-3) return float(__builtin_fma(double(x) * v * v, -1.0 / 6, double(x)));
  return __builtin_copysignf(float(log_wide(v + __builtin_sqrt(v * v + 1))), x);
}
inline float acosh(float x) {
  const double v = double(x);
  return x < 1 ? kNaN : float(log_wide(v + __builtin_sqrt(v * v - 1)));
}
inline float atanh(float x) {
  const double v = double(x);
  if (__builtin_fabsf(x) < 1e-3f) return float(__builtin_fma(v * v * v, 1.0 / 3, v));
  return float(0.5 * log_wide((1 + v) / (1 - v)));
}
inline float asin(float x) {
  const double v = double(x);
  return float(atan2_wide(v, __builtin_sqrt((1 - v) * (1 + v))));
}
inline float acos(float x) {
  const double v = double(x);
  return float(atan2_wide(__builtin_sqrt((1 - v) * (1 + v)), v));
}
inline float atan(float x) { return float(atan2_wide(double(x), 1.0)); }
inline float atan2(float y, float x) { return float(atan2_wide(double(y), double(x))); }

// ---- parts of a float
inline float fdim(float a, float b) { return a != a || b != b ? kNaN : a > b ? a - b : 0.0f; }
// mantissa in [1/2, 1) of a finite number other than 0
inline float frexp(float v, int* exponent) {
  *exponent = 0;
  if (v == 0 || !__builtin_isfinite(v)) return v;
  int extra = 0;
  if (__builtin_fabsf(v) < 0x1p-126f) v *= 0x1p24f, extra = -24;
  const unsigned bits = bits_of(v);
  *exponent = int(bits >> 23 & 255) - 126 + extra;
  return float_of((bits & 0x807fffff) | 0x3f000000);
}
inline int ilogb(float v) {
  if (v == 0) return -__INT_MAX__ - 1;
  if (!__builtin_isfinite(v)) return __INT_MAX__;
  int e;
  frexp(v, &e);
  return e - 1;
}
inline float ldexp(float v, int e) {
  e = e < -400 ? -400 : e > 400 ? 400 : e;
  return float(scale(double(v), e));  // exact in double, so rounded once
}
inline float nextafter(float x, float y) {
  if (x != x || y != y) return kNaN;
  if (x == y) return y;
  if (x == 0) return float_of(y < 0 ? 0x80000001u : 1u);
  const unsigned bits = bits_of(x);
  return float_of((x < y) == (x > 0) ? bits + 1 : bits - 1);
}
// Exact: long division of the mantissas, 40 bits per step.
inline float fmod(float x, float y) {
  const float b = __builtin_fabsf(y);
  if (!__builtin_isfinite(x) || y != y || b == 0) return kNaN;
  if (__builtin_fabsf(x) < b) return x;
  int ex, ey;
  unsigned long rest = (unsigned long)(frexp(__builtin_fabsf(x), &ex) * 0x1p24f);
  const unsigned long by = (unsigned long)(frexp(b, &ey) * 0x1p24f);
  rest %= by;
  for (int left = ex - ey; left > 0; left -= 40) rest = (rest << (left < 40 ? left : 40)) % by;
  return __builtin_copysignf(ldexp(float(rest), ey - 24), x);
}

}  // namespace gpu
}  // namespace _msl
