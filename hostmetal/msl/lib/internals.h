// Names of Apple's own headers that well-known shader libraries call when they add overloads of the
// library's functions.
#pragma once

#include "simdgroup_matrix.h"
#include "texture.h"
#include "uniform.h"

#define __METAL_MAYBE_FAST_MATH__ 0
#define __METAL_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 0

inline float __metal_ldexp(float a, int k, int = 0) { return metal::ldexp(a, k); }
inline float __metal_frexp(float a, thread int* exponent) { return metal::frexp(a, *exponent); }
inline ushort __metal_get_simdgroup_size(ushort) { return 32; }
inline ushort __metal_get_thread_index_in_simdgroup(ushort) { return ushort(_msl_lane()); }
inline float __metal_simd_xor(float x) { return as_type<float>(metal::simd_xor(as_type<uint>(x))); }
template <class T>
inline T __metal_simd_xor(T x) {
  return metal::simd_xor(x);
}

#define MSL_INTERNAL1(name) \
  inline float __metal_##name(float a, int = 0) { return metal::name(a); }
#define MSL_INTERNAL2(name) \
  inline float __metal_##name(float a, float b, int = 0) { return metal::name(a, b); }
#define MSL_INTERNAL3(name) \
  inline float __metal_##name(float a, float b, float c, int = 0) { return metal::name(a, b, c); }
// clang-format off
MSL_INTERNAL1(acos) MSL_INTERNAL1(acosh) MSL_INTERNAL1(asin) MSL_INTERNAL1(asinh)
MSL_INTERNAL1(atan) MSL_INTERNAL1(atanh) MSL_INTERNAL1(ceil) MSL_INTERNAL1(cos) MSL_INTERNAL1(cosh)
MSL_INTERNAL1(cospi) MSL_INTERNAL1(exp) MSL_INTERNAL1(exp2) MSL_INTERNAL1(exp10) MSL_INTERNAL1(fabs)
MSL_INTERNAL1(floor) MSL_INTERNAL1(fract) MSL_INTERNAL1(log) MSL_INTERNAL1(log2)
MSL_INTERNAL1(log10) MSL_INTERNAL1(rint) MSL_INTERNAL1(round) MSL_INTERNAL1(rsqrt)
MSL_INTERNAL1(sin) MSL_INTERNAL1(sinh) MSL_INTERNAL1(sinpi) MSL_INTERNAL1(sqrt) MSL_INTERNAL1(tan)
MSL_INTERNAL1(tanh) MSL_INTERNAL1(tanpi) MSL_INTERNAL1(trunc) MSL_INTERNAL2(atan2)
MSL_INTERNAL2(divide) MSL_INTERNAL2(fmax) MSL_INTERNAL2(fmin) MSL_INTERNAL2(fmod)
MSL_INTERNAL2(nextafter) MSL_INTERNAL2(pow) MSL_INTERNAL2(powr) MSL_INTERNAL3(fma)
MSL_INTERNAL3(fmax3) MSL_INTERNAL3(fmedian3) MSL_INTERNAL3(fmin3)
// clang-format on
#define MSL_INTERNAL_SIMD(name)               \
  template <class T, class... A>              \
  inline T __metal_simd_##name(T x, A... a) { \
    return metal::simd_##name(x, a...);       \
  }
    // clang-format off
MSL_INTERNAL_SIMD(broadcast) MSL_INTERNAL_SIMD(shuffle) MSL_INTERNAL_SIMD(shuffle_and_fill_down)
MSL_INTERNAL_SIMD(shuffle_and_fill_up) MSL_INTERNAL_SIMD(shuffle_down) MSL_INTERNAL_SIMD(shuffle_up)
MSL_INTERNAL_SIMD(shuffle_rotate_down) MSL_INTERNAL_SIMD(shuffle_rotate_up)
MSL_INTERNAL_SIMD(shuffle_xor) MSL_INTERNAL_SIMD(max) MSL_INTERNAL_SIMD(min) MSL_INTERNAL_SIMD(sum)
MSL_INTERNAL_SIMD(product) MSL_INTERNAL_SIMD(and) MSL_INTERNAL_SIMD(or)
MSL_INTERNAL_SIMD(prefix_exclusive_sum) MSL_INTERNAL_SIMD(prefix_inclusive_sum)
MSL_INTERNAL_SIMD(prefix_exclusive_product) MSL_INTERNAL_SIMD(prefix_inclusive_product)
    // clang-format on
