// <metal_math>, <metal_common>, <metal_integer>, <metal_relational>, <metal_geometric>.
// Scalar functions are plain overloads, as in MSL, so that mixed arguments resolve (or are
// ambiguous) as they do there. half computes in float and rounds once; bfloat becomes a float, as
// MSL has no functions for it. Most float functions are the C library's: more exact than MSL asks.
#pragma once

#include "matrix.h"

#include "gpu_math.h"
#if defined(__NVPTX__)
#define MSL_LIBM(name) _msl::gpu::name
#else
#define MSL_LIBM(name) __builtin_##name##f
#endif
// Functions that loops over threads, and in shaders, become vector code with.
#if defined(__NVPTX__)
#define MSL_VECTOR(name, straight) _msl::gpu::name
#elif defined(__FMA__) || defined(__aarch64__)
#define MSL_VECTOR(name, straight) _msl::gpu::straight
#else
#define MSL_VECTOR(name, straight) MSL_LIBM(name)
#endif

// M(name) for vectors of every width over a scalar overload set.
#define MSL_VEC1(T, name)                                                                   \
  inline vec<T, 2> name(vec<T, 2> a) { return vec<T, 2>(name(a.x), name(a.y)); }            \
  inline vec<T, 3> name(vec<T, 3> a) { return vec<T, 3>(name(a.x), name(a.y), name(a.z)); } \
  inline vec<T, 4> name(vec<T, 4> a) {                                                      \
    return vec<T, 4>(name(a.x), name(a.y), name(a.z), name(a.w));                           \
  }
#define MSL_VEC2(T, name)                                                             \
  inline vec<T, 2> name(vec<T, 2> a, vec<T, 2> b) {                                   \
    return vec<T, 2>(name(a.x, b.x), name(a.y, b.y));                                 \
  }                                                                                   \
  inline vec<T, 3> name(vec<T, 3> a, vec<T, 3> b) {                                   \
    return vec<T, 3>(name(a.x, b.x), name(a.y, b.y), name(a.z, b.z));                 \
  }                                                                                   \
  inline vec<T, 4> name(vec<T, 4> a, vec<T, 4> b) {                                   \
    return vec<T, 4>(name(a.x, b.x), name(a.y, b.y), name(a.z, b.z), name(a.w, b.w)); \
  }
#define MSL_VEC3(T, name)                                                            \
  inline vec<T, 2> name(vec<T, 2> a, vec<T, 2> b, vec<T, 2> c) {                     \
    return vec<T, 2>(name(a.x, b.x, c.x), name(a.y, b.y, c.y));                      \
  }                                                                                  \
  inline vec<T, 3> name(vec<T, 3> a, vec<T, 3> b, vec<T, 3> c) {                     \
    return vec<T, 3>(name(a.x, b.x, c.x), name(a.y, b.y, c.y), name(a.z, b.z, c.z)); \
  }                                                                                  \
  inline vec<T, 4> name(vec<T, 4> a, vec<T, 4> b, vec<T, 4> c) {                     \
    return vec<T, 4>(name(a.x, b.x, c.x), name(a.y, b.y, c.y), name(a.z, b.z, c.z),  \
                     name(a.w, b.w, c.w));                                           \
  }
// A predicate: bool vectors.
#define MSL_VEC1B(T, name)                                                                        \
  inline vec<bool, 2> name(vec<T, 2> a) { return vec<bool, 2>(name(a.x), name(a.y)); }            \
  inline vec<bool, 3> name(vec<T, 3> a) { return vec<bool, 3>(name(a.x), name(a.y), name(a.z)); } \
  inline vec<bool, 4> name(vec<T, 4> a) {                                                         \
    return vec<bool, 4>(name(a.x), name(a.y), name(a.z), name(a.w));                              \
  }
#define MSL_VEC2B(T, name)                                                               \
  inline vec<bool, 2> name(vec<T, 2> a, vec<T, 2> b) {                                   \
    return vec<bool, 2>(name(a.x, b.x), name(a.y, b.y));                                 \
  }                                                                                      \
  inline vec<bool, 3> name(vec<T, 3> a, vec<T, 3> b) {                                   \
    return vec<bool, 3>(name(a.x, b.x), name(a.y, b.y), name(a.z, b.z));                 \
  }                                                                                      \
  inline vec<bool, 4> name(vec<T, 4> a, vec<T, 4> b) {                                   \
    return vec<bool, 4>(name(a.x, b.x), name(a.y, b.y), name(a.z, b.z), name(a.w, b.w)); \
  }

// A float function, and half through it. `expr` speaks of a (, b (, c)) as floats.
#define MSL_MATH1(name, expr)                               \
  inline float name(float a) { return expr; }               \
  inline half name(half v) { return half(name(float(v))); } \
  MSL_VEC1(float, name) MSL_VEC1(half, name)
#define MSL_MATH2(name, expr)                                                 \
  inline float name(float a, float b) { return expr; }                        \
  inline half name(half v, half w) { return half(name(float(v), float(w))); } \
  MSL_VEC2(float, name) MSL_VEC2(half, name)
#define MSL_MATH3(name, expr)                                                                   \
  inline float name(float a, float b, float c) { return expr; }                                 \
  inline half name(half u, half v, half w) { return half(name(float(u), float(v), float(w))); } \
  MSL_VEC3(float, name) MSL_VEC3(half, name)

namespace _msl {
// sin(pi x), cos(pi x): exact at multiples of 1/2, where sin(pi * x) is not.
inline float sin_pi(float x) {
  float r = x - 2.0f * __builtin_roundf(x * 0.5f);  // in [-1, 1]
  if (r > 0.5f) r = 1.0f - r;
  if (r < -0.5f) r = -1.0f - r;
  return MSL_VECTOR(sin, straight_sin)(r * 3.14159265358979323846f);
}
inline float cos_pi(float x) {
  float r = __builtin_fabsf(x - 2.0f * __builtin_roundf(x * 0.5f));  // in [0, 1]
  return r == 0.5f   ? 0.0f
         : r < 0.25f ? MSL_VECTOR(cos, straight_cos)(r * 3.14159265358979323846f)
                     : MSL_VECTOR(sin, straight_sin)((0.5f - r) * 3.14159265358979323846f);
}
inline float tan_pi(float x) { return sin_pi(x) / cos_pi(x); }
inline float fract(float x) {
  float f = x - __builtin_floorf(x);
  if (__builtin_isinf(x)) return 0.0f;
  return f < 0x1.fffffep-1f || f != f ? f : 0x1.fffffep-1f;
}
inline half fract(half x) {  // of a small negative number, rounding would make 1
  const half f = half(fract(float(x)));
  return f < half(0x1.ffcp-1f) || f != f ? f : half(0x1.ffcp-1f);
}
// 1 / sqrt(x) is off by up to 1.5 units in the last place; one step of Newton's with the error of
// x r r in full leaves it correctly rounded.
inline float rsqrt(float x) {
  const float r = 1.0f / __builtin_sqrtf(x);
#ifdef _MSL_FAST_MATH
  return r;
#else
  const float h = x * r, low = __builtin_fmaf(x, r, -h);
  const float error = __builtin_fmaf(-low, r, __builtin_fmaf(-h, r, 1.0f));
  const float better = __builtin_fmaf(0.5f * r, error, r);
  return better == better ? better : r;  // x is 0 or infinite
#endif
}
// a b + c rounded once: the product is exact in float, its sum with c is rounded to odd, which the
// rounding to half then does not mistake for a tie.
inline half fma_half(float a, float b, float c) {
  const float product = a * b, sum = product + c;
  const float part = sum - product, rest = (product - (sum - part)) + (c - part);
  uint bits = __builtin_bit_cast(uint, sum);
  if (rest != 0 && __builtin_isfinite(rest)) bits = (bits - ((rest < 0) != (sum < 0))) | 1;
  return half(__builtin_bit_cast(float, bits));
}
inline float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == x ? x : 0.0f; }
inline float median(float a, float b, float c) {
  return __builtin_fmaxf(__builtin_fminf(a, b), __builtin_fminf(__builtin_fmaxf(a, b), c));
}
inline float next_after(float x, float y) { return MSL_LIBM(nextafter)(x, y); }
inline float smooth_step(float e0, float e1, float x) {
  float t = __builtin_fminf(__builtin_fmaxf((x - e0) / (e1 - e0), 0.0f), 1.0f);
  return t * t * (3.0f - 2.0f * t);
}
}  // namespace _msl

namespace metal {

// ---- math
MSL_MATH1(acos, MSL_LIBM(acos)(a))
MSL_MATH1(acosh, MSL_LIBM(acosh)(a))
MSL_MATH1(asin, MSL_LIBM(asin)(a))
MSL_MATH1(asinh, MSL_LIBM(asinh)(a))
MSL_MATH1(atan, MSL_LIBM(atan)(a))
MSL_MATH1(atanh, MSL_LIBM(atanh)(a))
MSL_MATH1(ceil, __builtin_ceilf(a))
MSL_MATH1(cos, MSL_VECTOR(cos, straight_cos)(a))
MSL_MATH1(cosh, MSL_LIBM(cosh)(a))
MSL_MATH1(cospi, _msl::cos_pi(a))
MSL_MATH1(exp, MSL_VECTOR(exp, exp)(a))
MSL_MATH1(exp2, MSL_VECTOR(exp2, exp2)(a))
MSL_MATH1(exp10, MSL_LIBM(exp10)(a))
MSL_MATH1(fabs, __builtin_fabsf(a))
MSL_MATH1(abs, __builtin_fabsf(a))
MSL_MATH1(floor, __builtin_floorf(a))
inline float fract(float a) { return _msl::fract(a); }
inline half fract(half a) { return _msl::fract(a); }
MSL_VEC1(float, fract)
MSL_VEC1(half, fract)
MSL_MATH1(log, MSL_VECTOR(log, log)(a))
MSL_MATH1(log2, MSL_LIBM(log2)(a))
MSL_MATH1(log10, MSL_LIBM(log10)(a))
MSL_MATH1(rint, __builtin_rintf(a))
MSL_MATH1(round, __builtin_roundf(a))
MSL_MATH1(rsqrt, _msl::rsqrt(a))
MSL_MATH1(sin, MSL_VECTOR(sin, straight_sin)(a))
MSL_MATH1(sinh, MSL_LIBM(sinh)(a))
MSL_MATH1(sinpi, _msl::sin_pi(a))
MSL_MATH1(sqrt, __builtin_sqrtf(a))
MSL_MATH1(tan, MSL_LIBM(tan)(a))
MSL_MATH1(tanh, MSL_LIBM(tanh)(a))
MSL_MATH1(tanpi, _msl::tan_pi(a))
MSL_MATH1(trunc, __builtin_truncf(a))
MSL_MATH2(atan2, MSL_LIBM(atan2)(a, b))
MSL_MATH2(copysign, __builtin_copysignf(a, b))
MSL_MATH2(fdim, MSL_LIBM(fdim)(a, b))
MSL_MATH2(fmax, __builtin_fmaxf(a, b))
MSL_MATH2(fmin, __builtin_fminf(a, b))
MSL_MATH2(max, __builtin_fmaxf(a, b))
MSL_MATH2(min, __builtin_fminf(a, b))
MSL_MATH2(fmod, MSL_LIBM(fmod)(a, b))
MSL_MATH2(pow, MSL_LIBM(pow)(a, b))
// Below zero, powr is not defined; fast math makes x * x of powr(x, 2), as of pow(x, 2).
#ifdef _MSL_FAST_MATH
MSL_MATH2(powr, MSL_LIBM(pow)(a, b))
#else
MSL_MATH2(powr, a < 0 ? __builtin_nanf("") : MSL_LIBM(pow)(a, b))
#endif
MSL_MATH2(divide, a / b)
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline half fma(half a, half b, half c) { return _msl::fma_half(float(a), float(b), float(c)); }
MSL_VEC3(float, fma)
MSL_VEC3(half, fma)
MSL_MATH3(fmax3, __builtin_fmaxf(__builtin_fmaxf(a, b), c))
MSL_MATH3(fmin3, __builtin_fminf(__builtin_fminf(a, b), c))
MSL_MATH3(fmedian3, _msl::median(a, b, c))
MSL_MATH3(max3, __builtin_fmaxf(__builtin_fmaxf(a, b), c))
MSL_MATH3(min3, __builtin_fminf(__builtin_fminf(a, b), c))
MSL_MATH3(median3, _msl::median(a, b, c))

// nextafter steps in the type's own grid.
inline float nextafter(float a, float b) { return MSL_LIBM(nextafter)(a, b); }
inline half nextafter(half a, half b) {
  if (a != a || b != b) return a + b;
  if (a == b) return b;
  if (a == half(0)) return __builtin_bit_cast(half, ushort(b < a ? 0x8001 : 1));
  const ushort bits = __builtin_bit_cast(ushort, a);
  return __builtin_bit_cast(half, ushort((a < b) == (a > half(0)) ? bits + 1 : bits - 1));
}
MSL_VEC2(float, nextafter)
MSL_VEC2(half, nextafter)

// Results through pointers or references. The address space of the result's object is any.
#define MSL_OUT1(T, TV, I, IV, SPACE)                                          \
  inline TV frexp(TV v, SPACE IV& exponent) { return msl_frexp(v, exponent); } \
  inline TV modf(TV v, SPACE TV& whole) {                                      \
    return whole = trunc(v), copysign(select_inf(v, v - trunc(v)), v);         \
  }                                                                            \
  inline TV sincos(TV v, SPACE TV& cosine) { return cosine = cos(v), sin(v); }
inline float select_inf(float v, float rest) { return __builtin_isinf(v) ? 0.0f : rest; }
inline half select_inf(half v, half rest) { return __builtin_isinf(float(v)) ? half(0) : rest; }
template <class T, int N>
inline vec<T, N> select_inf(vec<T, N> v, vec<T, N> rest) {
  for (int i = 0; i < N; ++i) rest[i] = select_inf(v[i], rest[i]);
  return rest;
}
template <class E>
inline float msl_frexp(float v, E& exponent) {
  int e;
  const float m = MSL_LIBM(frexp)(v, &e);
  exponent = __builtin_isfinite(v) ? e : 0;
  return m;
}
template <class E>
inline half msl_frexp(half v, E& exponent) {
  return half(msl_frexp(float(v), exponent));
}
template <class T, int N, class E>
inline vec<T, N> msl_frexp(vec<T, N> v, E& exponent) {
  for (int i = 0; i < N; ++i) {
    int e;
    v[i] = msl_frexp(v[i], e);
    exponent[i] = e;
  }
  return v;
}
// clang-format off
#define MSL_OUT(SPACE)                                                                             \
  MSL_OUT1(float, float, int, int, SPACE) MSL_OUT1(float, float2, int, int2, SPACE)                \
  MSL_OUT1(float, float3, int, int3, SPACE) MSL_OUT1(float, float4, int, int4, SPACE)              \
  MSL_OUT1(half, half, int, int, SPACE) MSL_OUT1(half, half2, int, int2, SPACE)                    \
  MSL_OUT1(half, half3, int, int3, SPACE) MSL_OUT1(half, half4, int, int4, SPACE)
// clang-format on
MSL_OUT(thread)
MSL_OUT(device)
MSL_OUT(threadgroup)

inline int ilogb(float v) { return MSL_LIBM(ilogb)(v); }
inline int ilogb(half v) { return MSL_LIBM(ilogb)(float(v)); }
inline float ldexp(float v, int e) { return MSL_LIBM(ldexp)(v, e); }
inline half ldexp(half v, int e) { return half(MSL_LIBM(ldexp)(float(v), e)); }
template <class T, int N>
inline vec<int, N> ilogb(vec<T, N> v) {
  return msl_map([](T a) { return ilogb(a); }, v);
}
template <class T, int N>
inline vec<T, N> ldexp(vec<T, N> v, vec<int, N> e) {
  return msl_map([](T a, int b) { return ldexp(a, b); }, v, e);
}

// ---- common
MSL_MATH1(saturate, __builtin_fminf(__builtin_fmaxf(a, 0.0f), 1.0f))
MSL_MATH1(sign, _msl::sign(a))
MSL_MATH3(clamp, __builtin_fminf(__builtin_fmaxf(a, b), c))
MSL_MATH3(mix, a + (b - a) * c)
MSL_MATH3(smoothstep, _msl::smooth_step(a, b, c))
MSL_MATH2(step, b < a ? 0.0f : 1.0f)

// ---- integer
#define MSL_INT_FUNCTIONS(T)                                                                      \
  inline T abs(T a) { return a < T(0) ? T(-a) : a; }                                              \
  inline T max(T a, T b) { return a > b ? a : b; }                                                \
  inline T min(T a, T b) { return a < b ? a : b; }                                                \
  inline T clamp(T a, T lo, T hi) { return min(max(a, lo), hi); }                                 \
  inline T max3(T a, T b, T c) { return max(max(a, b), c); }                                      \
  inline T min3(T a, T b, T c) { return min(min(a, b), c); }                                      \
  inline T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }                   \
  inline make_unsigned_t<T> absdiff(T a, T b) {                                                   \
    using U = make_unsigned_t<T>;                                                                 \
    return a > b ? U(U(a) - U(b)) : U(U(b) - U(a));                                               \
  }                                                                                               \
  inline T addsat(T a, T b) {                                                                     \
    T r;                                                                                          \
    return !__builtin_add_overflow(a, b, &r) ? r                                                  \
           : b < T(0)                        ? numeric_limits<T>::min()                           \
                                             : numeric_limits<T>::max();                                                 \
  }                                                                                               \
  inline T subsat(T a, T b) {                                                                     \
    T r;                                                                                          \
    if (!__builtin_sub_overflow(a, b, &r)) return r;                                              \
    return a < b ? numeric_limits<T>::min() : numeric_limits<T>::max();                           \
  }                                                                                               \
  inline T hadd(T a, T b) { return T((a & b) + ((a ^ b) >> 1)); }                                 \
  inline T rhadd(T a, T b) { return T((a | b) - ((a ^ b) >> 1)); }                                \
  inline T mulhi(T a, T b) { return T((__int128(a) * __int128(b)) >> (8 * sizeof(T))); }          \
  inline T madhi(T a, T b, T c) { return T(mulhi(a, b) + c); }                                    \
  inline T madsat(T a, T b, T c) {                                                                \
    using W = conditional_t<is_signed_v<T>, __int128, unsigned __int128>;                         \
    const W r = W(a) * W(b) + W(c), lo = numeric_limits<T>::min(), hi = numeric_limits<T>::max(); \
    return T(r < lo ? lo : r > hi ? hi : r);                                                      \
  }                                                                                               \
  inline T popcount(T a) { return T(__builtin_popcountl(make_unsigned_t<T>(a))); }                \
  inline T clz(T a) {                                                                             \
    const ulong u = make_unsigned_t<T>(a);                                                        \
    return T(u ? __builtin_clzl(u) - int(64 - 8 * sizeof(T)) : int(8 * sizeof(T)));               \
  }                                                                                               \
  inline T ctz(T a) {                                                                             \
    const ulong u = make_unsigned_t<T>(a);                                                        \
    return T(u ? __builtin_ctzl(u) : int(8 * sizeof(T)));                                         \
  }                                                                                               \
  inline T reverse_bits(T a) {                                                                    \
    return T(__builtin_bitreverse64(make_unsigned_t<T>(a)) >> (64 - 8 * sizeof(T)));              \
  }                                                                                               \
  inline T rotate(T a, T by) {                                                                    \
    using U = make_unsigned_t<T>;                                                                 \
    constexpr unsigned bits = 8 * sizeof(T);                                                      \
    const unsigned n = unsigned(U(by)) % bits;                                                    \
    return T(U(U(a) << n) | U(U(a) >> ((bits - n) % bits)));                                      \
  }                                                                                               \
  inline T extract_bits(T a, uint offset, uint bits) {                                            \
    constexpr uint width = 8 * sizeof(T);                                                         \
    if (bits == 0) return T(0);                                                                   \
    const ulong left = ulong(make_unsigned_t<T>(a)) << (64 - min(offset + bits, width));          \
    return is_signed_v<T> ? T(long(left) >> (64 - bits)) : T(left >> (64 - bits));                \
  }                                                                                               \
  inline T insert_bits(T base, T insert, uint offset, uint bits) {                                \
    if (bits == 0) return base;                                                                   \
    const ulong mask = (~0ul >> (64 - bits)) << offset;                                           \
    return T((ulong(base) & ~mask) | ((ulong(insert) << offset) & mask));                         \
  }                                                                                               \
  inline T sign(T a) { return T((a > T(0)) - (a < T(0))); }
inline uint min(uint a, uint b);
MSL_INTS(MSL_INT_FUNCTIONS)
inline int mul24(int a, int b) { return int(uint(a) << 8) / 256 * (int(uint(b) << 8) / 256); }
inline uint mul24(uint a, uint b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int mad24(int a, int b, int c) { return mul24(a, b) + c; }
inline uint mad24(uint a, uint b, uint c) { return mul24(a, b) + c; }
// clang-format off
MSL_VEC2(int, mul24) MSL_VEC2(uint, mul24) MSL_VEC3(int, mad24) MSL_VEC3(uint, mad24)
// clang-format on
// clang-format off
#define MSL_INT_VECTORS(T)                                                                         \
  MSL_VEC1(T, abs) MSL_VEC2(T, max) MSL_VEC2(T, min) MSL_VEC3(T, clamp) MSL_VEC3(T, max3)          \
  MSL_VEC3(T, min3) MSL_VEC3(T, median3) MSL_VEC2(T, addsat) MSL_VEC2(T, subsat) MSL_VEC2(T, hadd) \
  MSL_VEC2(T, rhadd) MSL_VEC2(T, mulhi) MSL_VEC3(T, madhi) MSL_VEC3(T, madsat)                     \
  MSL_VEC1(T, popcount) MSL_VEC1(T, clz) MSL_VEC1(T, ctz) MSL_VEC1(T, reverse_bits)                \
  MSL_VEC2(T, rotate) MSL_VEC1(T, sign)
MSL_INTS_BUT_SCHAR(MSL_INT_VECTORS)
    // clang-format on
    template <class T, int N, class = enable_if_t<is_integral_v<T>>>
    inline vec<make_unsigned_t<T>, N> absdiff(vec<T, N> a, vec<T, N> b) {
  return msl_map([](T x, T y) { return absdiff(x, y); }, a, b);
}
template <class T, int N, class = enable_if_t<is_integral_v<T>>>
inline vec<T, N> extract_bits(vec<T, N> a, uint offset, uint bits) {
  return msl_map([=](T x) { return extract_bits(x, offset, bits); }, a);
}
template <class T, int N, class = enable_if_t<is_integral_v<T>>>
inline vec<T, N> insert_bits(vec<T, N> a, vec<T, N> b, uint offset, uint bits) {
  return msl_map([=](T x, T y) { return insert_bits(x, y, offset, bits); }, a, b);
}

// ---- relational
// clang-format off
#define MSL_PREDICATES(T)                                                              \
  inline bool isfinite(T a) { return __builtin_isfinite(float(a)); }                   \
  inline bool isinf(T a) { return __builtin_isinf(float(a)); }                         \
  inline bool isnan(T a) { return __builtin_isnan(float(a)); }                         \
  inline bool isnormal(T a) {                                                          \
    return __builtin_isfinite(float(a)) &&                                             \
           __builtin_fabsf(float(a)) >= float(numeric_limits<T>::min());               \
  }                                                                                    \
  inline bool isordered(T a, T b) { return !isnan(a) && !isnan(b); }                   \
  inline bool isunordered(T a, T b) { return isnan(a) || isnan(b); }                   \
  inline bool signbit(T a) { return __builtin_signbit(float(a)) != 0; }                \
  MSL_VEC1B(T, isfinite) MSL_VEC1B(T, isinf) MSL_VEC1B(T, isnan) MSL_VEC1B(T, isnormal)     \
  MSL_VEC1B(T, signbit) MSL_VEC2B(T, isordered) MSL_VEC2B(T, isunordered)
// clang-format on
MSL_PREDICATES(float)
MSL_PREDICATES(half)
MSL_PREDICATES(bfloat)
inline bool all(bool a) { return a; }
inline bool any(bool a) { return a; }
inline bool all(bool2 a) { return a.x & a.y; }
inline bool all(bool3 a) { return a.x & a.y & a.z; }
inline bool all(bool4 a) { return a.x & a.y & a.z & a.w; }
inline bool any(bool2 a) { return a.x | a.y; }
inline bool any(bool3 a) { return a.x | a.y | a.z; }
inline bool any(bool4 a) { return a.x | a.y | a.z | a.w; }
#define MSL_SELECT(T)                                                                     \
  inline T select(T a, T b, bool c) { return c ? b : a; }                                 \
  inline vec<T, 2> select(vec<T, 2> a, vec<T, 2> b, bool2 c) {                            \
    return vec<T, 2>(c.x ? b.x : a.x, c.y ? b.y : a.y);                                   \
  }                                                                                       \
  inline vec<T, 3> select(vec<T, 3> a, vec<T, 3> b, bool3 c) {                            \
    return vec<T, 3>(c.x ? b.x : a.x, c.y ? b.y : a.y, c.z ? b.z : a.z);                  \
  }                                                                                       \
  inline vec<T, 4> select(vec<T, 4> a, vec<T, 4> b, bool4 c) {                            \
    return vec<T, 4>(c.x ? b.x : a.x, c.y ? b.y : a.y, c.z ? b.z : a.z, c.w ? b.w : a.w); \
  }
MSL_FLOATS(MSL_SELECT)
MSL_INTS_BUT_SCHAR(MSL_SELECT)
MSL_SELECT(bool)

// ---- geometric. Sums of half products stay in half's neighbour float until the end.
#define MSL_GEOMETRIC(T, N)                                                                  \
  inline T dot(vec<T, N> a, vec<T, N> b) {                                                   \
    float s = float(a.x) * float(b.x);                                                       \
    for (int i = 1; i < N; ++i) s += float(a[i]) * float(b[i]);                              \
    return T(s);                                                                             \
  }                                                                                          \
  inline T length_squared(vec<T, N> a) { return dot(a, a); }                                 \
  inline T length(vec<T, N> a) {                                                             \
    float s = float(a.x) * float(a.x);                                                       \
    for (int i = 1; i < N; ++i) s += float(a[i]) * float(a[i]);                              \
    return T(__builtin_sqrtf(s));                                                            \
  }                                                                                          \
  inline T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }                      \
  inline T distance_squared(vec<T, N> a, vec<T, N> b) { return length_squared(a - b); }      \
  inline vec<T, N> normalize(vec<T, N> a) {                                                  \
    float s = float(a.x) * float(a.x);                                                       \
    for (int i = 1; i < N; ++i) s += float(a[i]) * float(a[i]);                              \
    s = 1.0f / __builtin_sqrtf(s);                                                           \
    for (int i = 0; i < N; ++i) a[i] = T(float(a[i]) * s);                                   \
    return a;                                                                                \
  }                                                                                          \
  inline vec<T, N> faceforward(vec<T, N> n, vec<T, N> i, vec<T, N> r) {                      \
    return dot(r, i) < T(0) ? n : -n;                                                        \
  }                                                                                          \
  inline vec<T, N> reflect(vec<T, N> i, vec<T, N> n) { return i - n * T(T(2) * dot(n, i)); } \
  inline vec<T, N> refract(vec<T, N> i, vec<T, N> n, T eta) {                                \
    const float d = float(dot(n, i)), k = 1.0f - float(eta) * float(eta) * (1.0f - d * d);   \
    if (k < 0.0f) return vec<T, N>(T(0));                                                    \
    return i * eta - n * T(float(eta) * d + __builtin_sqrtf(k));                             \
  }
// clang-format off
MSL_GEOMETRIC(float, 2) MSL_GEOMETRIC(float, 3) MSL_GEOMETRIC(float, 4) MSL_GEOMETRIC(half, 2)
MSL_GEOMETRIC(half, 3) MSL_GEOMETRIC(half, 4)
// clang-format on
#define MSL_CROSS(T)                                                     \
  inline vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {                     \
    return vec<T, 3>(T(a.y * b.z - a.z * b.y), T(a.z * b.x - a.x * b.z), \
                     T(a.x * b.y - a.y * b.x));                          \
  }
    // clang-format off
MSL_CROSS(float) MSL_CROSS(half)
// clang-format on

// ---- precise:: and fast::. Both are the one implementation, and only -ffast-math changes anything; but
// precise::cos, log and sin are the C library's, whose last digits programs may want.
// clang-format off
#define MSL_BOTH(M)                                                                                \
  M(acos) M(acosh) M(asin) M(asinh) M(atan) M(atan2) M(atanh) M(ceil) M(copysign) M(cosh)   \
  M(cospi) M(divide) M(exp) M(exp2) M(exp10) M(fabs) M(abs) M(fdim) M(floor) M(fma) M(fmax) M(max) \
  M(fmin) M(min) M(fmod) M(fract) M(frexp) M(ilogb) M(ldexp) M(log2) M(log10) M(modf)       \
  M(pow) M(powr) M(rint) M(round) M(rsqrt) M(sincos) M(sinh) M(sinpi) M(sqrt) M(tan)        \
  M(tanh) M(tanpi) M(trunc) M(fmax3) M(fmin3) M(fmedian3) M(max3) M(min3) M(median3) M(clamp)      \
  M(mix) M(saturate) M(sign) M(smoothstep) M(step) M(distance) M(length) M(normalize) M(dot)       \
  M(distance_squared) M(length_squared) M(cross) M(reflect) M(refract) M(faceforward) M(isnan)     \
  M(isinf) M(isfinite)
// clang-format on
#define MSL_USING(name) using metal::name;
        namespace precise {
  MSL_BOTH(MSL_USING)
  MSL_MATH1(cos, MSL_LIBM(cos)(a))
  MSL_MATH1(log, MSL_LIBM(log)(a))
  MSL_MATH1(sin, MSL_LIBM(sin)(a))
}
namespace fast {
MSL_BOTH(MSL_USING)
MSL_USING(cos)
MSL_USING(log)
MSL_USING(sin)
}

// ---- <metal_pack>
#define MSL_PACK(N, BITS, UINT, WORD)                                                           \
  inline UINT pack_float_to_unorm##N##x##BITS(vec<float, N> v) {                                \
    UINT w = 0;                                                                                 \
    for (int i = 0; i < N; ++i)                                                                 \
      w |= UINT(UINT(__builtin_rintf(saturate(v[i]) * float((1u << BITS) - 1))) << (i * BITS)); \
    return w;                                                                                   \
  }                                                                                             \
  inline UINT pack_float_to_snorm##N##x##BITS(vec<float, N> v) {                                \
    UINT w = 0;                                                                                 \
    for (int i = 0; i < N; ++i)                                                                 \
      w |= UINT(                                                                                \
          UINT(int(__builtin_rintf(clamp(v[i], -1.0f, 1.0f) * float((1u << (BITS - 1)) - 1))) & \
               int((1u << BITS) - 1))                                                           \
          << (i * BITS));                                                                       \
    return w;                                                                                   \
  }                                                                                             \
  inline UINT pack_half_to_unorm##N##x##BITS(vec<half, N> v) {                                  \
    return pack_float_to_unorm##N##x##BITS(vec<float, N>(v));                                   \
  }                                                                                             \
  inline UINT pack_half_to_snorm##N##x##BITS(vec<half, N> v) {                                  \
    return pack_float_to_snorm##N##x##BITS(vec<float, N>(v));                                   \
  }                                                                                             \
  inline vec<float, N> unpack_unorm##N##x##BITS##_to_float(UINT w) {                            \
    vec<float, N> v;                                                                            \
    for (int i = 0; i < N; ++i)                                                                 \
      v[i] = float((w >> (i * BITS)) & ((1u << BITS) - 1)) / float((1u << BITS) - 1);           \
    return v;                                                                                   \
  }                                                                                             \
  inline vec<float, N> unpack_snorm##N##x##BITS##_to_float(UINT w) {                            \
    vec<float, N> v;                                                                            \
    for (int i = 0; i < N; ++i)                                                                 \
      v[i] = max(float(WORD(w >> (i * BITS))) / float((1u << (BITS - 1)) - 1), -1.0f);          \
    return v;                                                                                   \
  }                                                                                             \
  inline vec<half, N> unpack_unorm##N##x##BITS##_to_half(UINT w) {                              \
    return vec<half, N>(unpack_unorm##N##x##BITS##_to_float(w));                                \
  }                                                                                             \
  inline vec<half, N> unpack_snorm##N##x##BITS##_to_half(UINT w) {                              \
    return vec<half, N>(unpack_snorm##N##x##BITS##_to_float(w));                                \
  }
MSL_PACK(4, 8, uint, _msl_schar)
MSL_PACK(2, 16, uint, short)

inline uint pack_float_to_unorm10a2(float4 v) {
  const float4 s = saturate(v) * float4(1023, 1023, 1023, 3);
  return uint(__builtin_rintf(s.x)) | uint(__builtin_rintf(s.y)) << 10 |
         uint(__builtin_rintf(s.z)) << 20 | uint(__builtin_rintf(s.w)) << 30;
}
inline float4 unpack_unorm10a2_to_float(uint w) {
  return float4(float(w & 1023) / 1023, float(w >> 10 & 1023) / 1023, float(w >> 20 & 1023) / 1023,
                float(w >> 30) / 3);
}
// Red in the upper bits.
inline ushort pack_float_to_unorm565(float3 v) {
  const float3 s = saturate(v) * float3(31, 63, 31);
  return ushort(uint(__builtin_rintf(s.x)) << 11 | uint(__builtin_rintf(s.y)) << 5 |
                uint(__builtin_rintf(s.z)));
}
inline float3 unpack_unorm565_to_float(ushort w) {
  return float3(float(w >> 11) / 31, float(w >> 5 & 63) / 63, float(w & 31) / 31);
}
inline uint pack_float_to_srgb_unorm4x8(float4 v) {
  for (int i = 0; i < 3; ++i) {
    const float c = saturate(v[i]);
    v[i] = c <= 0.0031308f ? c * 12.92f : 1.055f * MSL_LIBM(pow)(c, 1 / 2.4f) - 0.055f;
  }
  return pack_float_to_unorm4x8(v);
}
inline float4 unpack_unorm4x8_srgb_to_float(uint w) {
  float4 v = unpack_unorm4x8_to_float(w);
  for (int i = 0; i < 3; ++i)
    v[i] = v[i] <= 0.04045f ? v[i] / 12.92f : MSL_LIBM(pow)((v[i] + 0.055f) / 1.055f, 2.4f);
  return v;
}
inline uint pack_half_to_unorm10a2(half4 v) { return pack_float_to_unorm10a2(float4(v)); }
inline ushort pack_half_to_unorm565(half3 v) { return pack_float_to_unorm565(float3(v)); }
inline uint pack_half_to_srgb_unorm4x8(half4 v) { return pack_float_to_srgb_unorm4x8(float4(v)); }
inline half4 unpack_unorm10a2_to_half(uint w) { return half4(unpack_unorm10a2_to_float(w)); }
inline half3 unpack_unorm565_to_half(ushort w) { return half3(unpack_unorm565_to_float(w)); }
inline half4 unpack_unorm4x8_srgb_to_half(uint w) {
  return half4(unpack_unorm4x8_srgb_to_float(w));
}

}  // namespace metal

template <class T, class U>
inline constexpr T as_type(U v) {
  static_assert(sizeof(T) == sizeof(U), "as_type needs two types of the same size");
  return __builtin_bit_cast(T, v);
}
namespace metal {
using ::as_type;
}
