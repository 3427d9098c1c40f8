// bfloat: the upper half of a float. As MSL says, it becomes a float, an integer or a bool by itself
// and nothing but an integer becomes a bfloat by itself; the library's functions take it as a float.
// A class, as clang's __bf16 knows no half and calls a library function to round.
#pragma once

#include "types.h"

namespace _msl {
template <bool>
struct EnableIf {};
template <>
struct EnableIf<true> {
  typedef int type;
};
template <bool b>
using enable = typename EnableIf<b>::type;
// Whether an object becomes a bool by its own operator, without being asked.
template <class C, class = void>
constexpr bool is_bool_by_itself = false;
template <class C>
constexpr bool is_bool_by_itself<C, decltype(void(((C*)nullptr)->operator bool()))> =
    __is_convertible(C, bool);
}  // namespace _msl

struct bfloat {
  ushort _bits;

  bfloat() = default;
  constexpr explicit bfloat(float v) : _bits(round(v)) {}
  constexpr explicit bfloat(half v) : _bits(round(v)) {}
  constexpr explicit bfloat(double v) : _bits(round(float(v))) {}
  template <class I, _msl::enable<__is_integral(I)> = 0>
  constexpr bfloat(I v) : _bits(round(float(v))) {}
  template <class C, _msl::enable<__is_class(C) && !__is_same(C, bfloat)> = 0,
            _msl::enable<_msl::is_bool_by_itself<C>> = 0>
  constexpr bfloat(C v) : _bits(round(float(v))) {}

  // float, exactly, and from there the types that a float converts to.
  constexpr operator float() const { return value(); }

  constexpr float value() const { return __builtin_bit_cast(float, uint(_bits) << 16); }
  static constexpr ushort round(float v) {
    const uint bits = __builtin_bit_cast(uint, v);
    return v != v ? ushort(bits >> 16 | 0x40) : ushort((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }

#define MSL_BFLOAT_OP(op)                                   \
  friend constexpr bfloat operator op(bfloat a, bfloat b) { \
    return bfloat(a.value() op b.value());                  \
  }                                                         \
  template <class I, _msl::enable<__is_integral(I)> = 0>    \
  friend constexpr bfloat operator op(bfloat a, I b) {      \
    return bfloat(a.value() op float(b));                   \
  }                                                         \
  template <class I, _msl::enable<__is_integral(I)> = 0>    \
  friend constexpr bfloat operator op(I a, bfloat b) {      \
    return bfloat(float(a) op b.value());                   \
  }                                                         \
  template <class H, _msl::enable<__is_same(H, half)> = 0>  \
  friend constexpr float operator op(bfloat a, H b) {       \
    return a.value() op float(b);                           \
  }                                                         \
  template <class H, _msl::enable<__is_same(H, half)> = 0>  \
  friend constexpr float operator op(H a, bfloat b) {       \
    return float(a) op b.value();                           \
  }                                                         \
  template <class A>                                        \
  constexpr bfloat& operator op##=(A b) {                   \
    return *this = bfloat(value() op float(b));             \
  }
  MSL_BFLOAT_OP(+)
  MSL_BFLOAT_OP(-)
  MSL_BFLOAT_OP(*)
  MSL_BFLOAT_OP(/)
#undef MSL_BFLOAT_OP
#define MSL_BFLOAT_COMPARE(op)                                                             \
  friend constexpr bool operator op(bfloat a, bfloat b) { return a.value() op b.value(); } \
  template <class A, _msl::enable<__is_arithmetic(A) || __is_same(A, half)> = 0>           \
  friend constexpr bool operator op(bfloat a, A b) {                                       \
    return a.value() op float(b);                                                          \
  }                                                                                        \
  template <class A, _msl::enable<__is_arithmetic(A) || __is_same(A, half)> = 0>           \
  friend constexpr bool operator op(A a, bfloat b) {                                       \
    return float(a) op b.value();                                                          \
  }
  MSL_BFLOAT_COMPARE(<)
  MSL_BFLOAT_COMPARE(<=)
  MSL_BFLOAT_COMPARE(>)
  MSL_BFLOAT_COMPARE(>=)
  MSL_BFLOAT_COMPARE(==)
  MSL_BFLOAT_COMPARE(!=)
#undef MSL_BFLOAT_COMPARE
  constexpr bfloat operator+() const { return *this; }
  constexpr bfloat operator-() const {
    bfloat v = *this;
    v._bits ^= 0x8000;
    return v;
  }
  constexpr bool operator!() const { return value() == 0.0f; }
  constexpr bfloat& operator++() { return *this += 1; }
  constexpr bfloat& operator--() { return *this -= 1; }
};
static_assert(sizeof(bfloat) == 2 && __is_trivially_copyable(bfloat), "bfloat is two bytes");
