// <metal_extended_vector>: vectors of more than four components, which have no names: subscripts, and operators by components.
#pragma once

#include "math.h"

namespace metal {

template <class T, int N>
struct vec {
  static_assert(N > 4 && N <= 32, "vec: 1 to 4 components, or up to 32 of an extended vector");
  T _data[N];

  vec() = default;
  constexpr explicit vec(T value) {
    for (int i = 0; i < N; ++i) _data[i] = value;
  }
  template <class... S, _msl::enable<sizeof...(S) == N && (is_convertible_v<S, T> && ...)> = 0>
  constexpr vec(S... values) : _data{T(values)...} {}
  template <class S>
  constexpr explicit vec(const vec<S, N>& other) {
    for (int i = 0; i < N; ++i) _data[i] = T(other[i]);
  }
  constexpr T& operator[](size_t i) { return _data[i]; }
  constexpr const T& operator[](size_t i) const { return _data[i]; }

#define MSL_EXTENDED(op)                                         \
  friend constexpr vec operator op(const vec& a, const vec& b) { \
    vec result;                                                  \
    for (int i = 0; i < N; ++i) result[i] = T(a[i] op b[i]);     \
    return result;                                               \
  }                                                              \
  template <class S, _msl::enable<is_convertible_v<S, T>> = 0>   \
  friend constexpr vec operator op(const vec& a, S b) {          \
    return a op vec(T(b));                                       \
  }                                                              \
  template <class S, _msl::enable<is_convertible_v<S, T>> = 0>   \
  friend constexpr vec operator op(S a, const vec& b) {          \
    return vec(T(a)) op b;                                       \
  }                                                              \
  template <class S>                                             \
  constexpr vec& operator op##=(const S & b) {                   \
    return *this = *this op b;                                   \
  }
  MSL_EXTENDED(+)
  MSL_EXTENDED(-)
  MSL_EXTENDED(*)
  MSL_EXTENDED(/)
#undef MSL_EXTENDED
  constexpr vec operator-() const {
    vec result;
    for (int i = 0; i < N; ++i) result[i] = T(-_data[i]);
    return result;
  }
};

}  // namespace metal
