// vec<T, N> and packed_vec<T, N>: plain members x, y, z, w (scalar code vectorises best over the
// threads of a group), MSL's constructors, swizzles, element-wise operators, comparisons to bool
// vectors. The three widths are written out: a class body per width compiles faster than one over
// index packs.
#pragma once

#include "swizzle.h"
#include "traits.h"

namespace metal {

template <class T, int N>
struct vec;
template <class T, int N>
struct packed_vec;

// An integer becomes a bfloat by a conversion of the user's kind, of which C++ makes one at a time.
#define MSL_TO_BFLOAT(I, T) __is_integral(I) && __is_same(T, bfloat)

// T: the type that a friend operator takes by value; both operands of vector or, implicitly, scalar
// type.
#define MSL_ARITHMETIC(M, F) \
  M(+, F) M(-, F) M(*, F) M(/, F) M(%, F) M(&, F) M(|, F) M(^, F) M(<<, F) M(>>, F)
#define MSL_COMPARISONS(M, F) M(<, F) M(<=, F) M(>, F) M(>=, F) M(==, F) M(!=, F) M(&&, F) M(||, F)

// Out of volatile memory: a template, as vec is copied like plain bytes.
#define MSL_VOLATILE(...)                                                   \
  template <class V, _msl::enable<_msl::is_volatile_place_of<V, vec>> = 0> \
  constexpr vec(V&& v) : __VA_ARGS__ {}

// Shifts by a vector of another integer type, as by one of the own.
#define MSL_SHIFT(op, N)                                                     \
  template <class U, _msl::enable<is_integral_v<U> && !is_same_v<T, U>> = 0> \
  friend constexpr vec operator op(vec a, vec<U, N> b) {                     \
    return a op vec(b);                                                      \
  }                                                                          \
  template <class U, _msl::enable<is_integral_v<U> && !is_same_v<T, U>> = 0> \
  constexpr vec& operator op##=(vec<U, N> b) {                               \
    return *this = *this op vec(b);                                          \
  }

#define MSL_OP2(op, _)                                                                         \
  friend constexpr vec operator op(vec a, vec b) { return vec(T(a.x op b.x), T(a.y op b.y)); } \
  constexpr vec& operator op##=(vec b) { return *this = *this op b; }
#define MSL_CMP2(op, _)                                      \
  friend constexpr vec<bool, 2> operator op(vec a, vec b) {  \
    return vec<bool, 2>(bool(a.x op b.x), bool(a.y op b.y)); \
  }

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;

  vec() = default;
  constexpr vec(T s) : x(s), y(s) {}
  template <class I, _msl::enable<MSL_TO_BFLOAT(I, T)> = 0>
  constexpr vec(I s) : vec(T(s)) {}
  constexpr vec(T x_, T y_) : x(x_), y(y_) {}
  template <class U>
  constexpr explicit vec(vec<U, 2> o) : x(T(o.x)), y(T(o.y)) {}
  template <class U, class = enable_if_t<!is_same_v<T, U>>>
  constexpr explicit vec(packed_vec<U, 2> o) : x(T(o.x)), y(T(o.y)) {}

  MSL_VOLATILE(x(v.x), y(v.y))
  template <class V, _msl::enable<__is_same(V, vec)> = 0>
  void operator=(V v) volatile { x = v.x, y = v.y; }

  constexpr T& operator[](size_t i) { return (&x)[i]; }
  constexpr const T& operator[](size_t i) const { return (&x)[i]; }

  MSL_ARITHMETIC(MSL_OP2, _)
  MSL_SHIFT(<<, 2)
  MSL_SHIFT(>>, 2)
  MSL_COMPARISONS(MSL_CMP2, _)
  constexpr vec operator+() const { return *this; }
  constexpr vec operator-() const { return vec(T(-x), T(-y)); }
  constexpr vec operator~() const { return vec(T(~x), T(~y)); }
  constexpr vec<bool, 2> operator!() const { return vec<bool, 2>(!x, !y); }
  constexpr vec& operator++() { return *this += T(1); }
  constexpr vec& operator--() { return *this -= T(1); }
  constexpr vec operator++(int) {
    vec o = *this;
    *this += T(1);
    return o;
  }
  constexpr vec operator--(int) {
    vec o = *this;
    *this -= T(1);
    return o;
  }

#include "swizzle2.inc"
};

#define MSL_OP3(op, _)                                       \
  friend constexpr vec operator op(vec a, vec b) {           \
    return vec(T(a.x op b.x), T(a.y op b.y), T(a.z op b.z)); \
  }                                                          \
  constexpr vec& operator op##=(vec b) { return *this = *this op b; }
#define MSL_CMP3(op, _)                                                        \
  friend constexpr vec<bool, 3> operator op(vec a, vec b) {                    \
    return vec<bool, 3>(bool(a.x op b.x), bool(a.y op b.y), bool(a.z op b.z)); \
  }

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;

  vec() = default;
  constexpr vec(T s) : x(s), y(s), z(s) {}
  template <class I, _msl::enable<MSL_TO_BFLOAT(I, T)> = 0>
  constexpr vec(I s) : vec(T(s)) {}
  constexpr vec(T x_, T y_, T z_) : x(x_), y(y_), z(z_) {}
  constexpr vec(vec<T, 2> a, T b) : x(a.x), y(a.y), z(b) {}
  constexpr vec(T a, vec<T, 2> b) : x(a), y(b.x), z(b.y) {}
  template <class U>
  constexpr explicit vec(vec<U, 3> o) : x(T(o.x)), y(T(o.y)), z(T(o.z)) {}
  template <class U, class = enable_if_t<!is_same_v<T, U>>>
  constexpr explicit vec(packed_vec<U, 3> o) : x(T(o.x)), y(T(o.y)), z(T(o.z)) {}

  MSL_VOLATILE(x(v.x), y(v.y), z(v.z))
  template <class V, _msl::enable<__is_same(V, vec)> = 0>
  void operator=(V v) volatile { x = v.x, y = v.y, z = v.z; }

  constexpr T& operator[](size_t i) { return (&x)[i]; }
  constexpr const T& operator[](size_t i) const { return (&x)[i]; }

  MSL_ARITHMETIC(MSL_OP3, _)
  MSL_SHIFT(<<, 3)
  MSL_SHIFT(>>, 3)
  MSL_COMPARISONS(MSL_CMP3, _)
  constexpr vec operator+() const { return *this; }
  constexpr vec operator-() const { return vec(T(-x), T(-y), T(-z)); }
  constexpr vec operator~() const { return vec(T(~x), T(~y), T(~z)); }
  constexpr vec<bool, 3> operator!() const { return vec<bool, 3>(!x, !y, !z); }
  constexpr vec& operator++() { return *this += T(1); }
  constexpr vec& operator--() { return *this -= T(1); }
  constexpr vec operator++(int) {
    vec o = *this;
    *this += T(1);
    return o;
  }
  constexpr vec operator--(int) {
    vec o = *this;
    *this -= T(1);
    return o;
  }

#include "swizzle3.inc"
};

#define MSL_OP4(op, _)                                                      \
  friend constexpr vec operator op(vec a, vec b) {                          \
    return vec(T(a.x op b.x), T(a.y op b.y), T(a.z op b.z), T(a.w op b.w)); \
  }                                                                         \
  constexpr vec& operator op##=(vec b) { return *this = *this op b; }
#define MSL_CMP4(op, _)                                                                          \
  friend constexpr vec<bool, 4> operator op(vec a, vec b) {                                      \
    return vec<bool, 4>(bool(a.x op b.x), bool(a.y op b.y), bool(a.z op b.z), bool(a.w op b.w)); \
  }

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;

  vec() = default;
  constexpr vec(T s) : x(s), y(s), z(s), w(s) {}
  template <class I, _msl::enable<MSL_TO_BFLOAT(I, T)> = 0>
  constexpr vec(I s) : vec(T(s)) {}
  constexpr vec(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}
  constexpr vec(vec<T, 2> a, T b, T c) : x(a.x), y(a.y), z(b), w(c) {}
  constexpr vec(T a, vec<T, 2> b, T c) : x(a), y(b.x), z(b.y), w(c) {}
  constexpr vec(T a, T b, vec<T, 2> c) : x(a), y(b), z(c.x), w(c.y) {}
  constexpr vec(vec<T, 2> a, vec<T, 2> b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
  constexpr vec(vec<T, 3> a, T b) : x(a.x), y(a.y), z(a.z), w(b) {}
  constexpr vec(T a, vec<T, 3> b) : x(a), y(b.x), z(b.y), w(b.z) {}
  template <class U>
  constexpr explicit vec(vec<U, 4> o) : x(T(o.x)), y(T(o.y)), z(T(o.z)), w(T(o.w)) {}
  template <class U, class = enable_if_t<!is_same_v<T, U>>>
  constexpr explicit vec(packed_vec<U, 4> o) : x(T(o.x)), y(T(o.y)), z(T(o.z)), w(T(o.w)) {}

  MSL_VOLATILE(x(v.x), y(v.y), z(v.z), w(v.w))
  template <class V, _msl::enable<__is_same(V, vec)> = 0>
  void operator=(V v) volatile { x = v.x, y = v.y, z = v.z, w = v.w; }

  constexpr T& operator[](size_t i) { return (&x)[i]; }
  constexpr const T& operator[](size_t i) const { return (&x)[i]; }

  MSL_ARITHMETIC(MSL_OP4, _)
  MSL_SHIFT(<<, 4)
  MSL_SHIFT(>>, 4)
  MSL_COMPARISONS(MSL_CMP4, _)
  constexpr vec operator+() const { return *this; }
  constexpr vec operator-() const { return vec(T(-x), T(-y), T(-z), T(-w)); }
  constexpr vec operator~() const { return vec(T(~x), T(~y), T(~z), T(~w)); }
  constexpr vec<bool, 4> operator!() const { return vec<bool, 4>(!x, !y, !z, !w); }
  constexpr vec& operator++() { return *this += T(1); }
  constexpr vec& operator--() { return *this -= T(1); }
  constexpr vec operator++(int) {
    vec o = *this;
    *this += T(1);
    return o;
  }
  constexpr vec operator--(int) {
    vec o = *this;
    *this -= T(1);
    return o;
  }

#include "swizzle4.inc"
};

// packed_vec: the same members at the scalar's alignment; becomes a vec in every expression.
#define MSL_PACKED_OP(op, _)                                                             \
  friend constexpr auto operator op(packed_vec a, packed_vec b) { return V(a) op V(b); } \
  friend constexpr auto operator op(packed_vec a, V b) { return V(a) op b; }             \
  friend constexpr auto operator op(V a, packed_vec b) { return a op V(b); }             \
  template <class A, class = enable_if_t<is_arithmetic_v<A>>>                            \
  friend constexpr auto operator op(packed_vec a, A b) {                                 \
    return V(a) op V(b);                                                                 \
  }                                                                                      \
  template <class A, class = enable_if_t<is_arithmetic_v<A>>>                            \
  friend constexpr auto operator op(A a, packed_vec b) {                                 \
    return V(a) op V(b);                                                                 \
  }
#define MSL_PACKED_ASSIGN(op, _) \
  constexpr packed_vec& operator op##=(V b) { return *this = V(*this) op b; }

template <class T>
struct packed_vec<T, 2> {
  using V = vec<T, 2>;
  T x, y;

  packed_vec() = default;
  constexpr packed_vec(T s) : x(s), y(s) {}
  template <class I, _msl::enable<MSL_TO_BFLOAT(I, T)> = 0>
  constexpr packed_vec(I s) : packed_vec(T(s)) {}
  constexpr packed_vec(T x_, T y_) : x(x_), y(y_) {}
  constexpr packed_vec(V v) : x(v.x), y(v.y) {}
  template <class... A, class = decltype(V(declval<A>()...)),
            class = enable_if_t<(sizeof...(A) > 1)>>
  constexpr explicit packed_vec(A... a) : packed_vec(V(a...)) {}
  template <class U>
  constexpr explicit packed_vec(vec<U, 2> v) : packed_vec(V(v)) {}
  constexpr operator V() const { return V(x, y); }
  template <class A, class = enable_if_t<is_arithmetic_v<A>>>
  constexpr packed_vec& operator=(A s) {
    return *this = V(s);
  }
  constexpr packed_vec& operator=(V v) {
    x = v.x;
    y = v.y;
    return *this;
  }

  constexpr T& operator[](size_t i) { return (&x)[i]; }
  constexpr const T& operator[](size_t i) const { return (&x)[i]; }

  MSL_ARITHMETIC(MSL_PACKED_OP, _)
  MSL_ARITHMETIC(MSL_PACKED_ASSIGN, _)
  MSL_COMPARISONS(MSL_PACKED_OP, _)
  constexpr V operator+() const { return *this; }
  constexpr V operator-() const { return -V(*this); }
  constexpr V operator~() const { return ~V(*this); }
  constexpr vec<bool, 2> operator!() const { return !V(*this); }

#include "swizzle2.inc"
};

template <class T>
struct packed_vec<T, 3> {
  using V = vec<T, 3>;
  T x, y, z;

  packed_vec() = default;
  constexpr packed_vec(T s) : x(s), y(s), z(s) {}
  template <class I, _msl::enable<MSL_TO_BFLOAT(I, T)> = 0>
  constexpr packed_vec(I s) : packed_vec(T(s)) {}
  constexpr packed_vec(T x_, T y_, T z_) : x(x_), y(y_), z(z_) {}
  constexpr packed_vec(V v) : x(v.x), y(v.y), z(v.z) {}
  template <class... A, class = decltype(V(declval<A>()...)),
            class = enable_if_t<(sizeof...(A) > 1)>>
  constexpr explicit packed_vec(A... a) : packed_vec(V(a...)) {}
  template <class U>
  constexpr explicit packed_vec(vec<U, 3> v) : packed_vec(V(v)) {}
  constexpr operator V() const { return V(x, y, z); }
  template <class A, class = enable_if_t<is_arithmetic_v<A>>>
  constexpr packed_vec& operator=(A s) {
    return *this = V(s);
  }
  constexpr packed_vec& operator=(V v) {
    x = v.x;
    y = v.y;
    z = v.z;
    return *this;
  }

  constexpr T& operator[](size_t i) { return (&x)[i]; }
  constexpr const T& operator[](size_t i) const { return (&x)[i]; }

  MSL_ARITHMETIC(MSL_PACKED_OP, _)
  MSL_ARITHMETIC(MSL_PACKED_ASSIGN, _)
  MSL_COMPARISONS(MSL_PACKED_OP, _)
  constexpr V operator+() const { return *this; }
  constexpr V operator-() const { return -V(*this); }
  constexpr V operator~() const { return ~V(*this); }
  constexpr vec<bool, 3> operator!() const { return !V(*this); }

#include "swizzle3.inc"
};

template <class T>
struct packed_vec<T, 4> {
  using V = vec<T, 4>;
  T x, y, z, w;

  packed_vec() = default;
  constexpr packed_vec(T s) : x(s), y(s), z(s), w(s) {}
  template <class I, _msl::enable<MSL_TO_BFLOAT(I, T)> = 0>
  constexpr packed_vec(I s) : packed_vec(T(s)) {}
  constexpr packed_vec(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}
  constexpr packed_vec(V v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
  template <class... A, class = decltype(V(declval<A>()...)),
            class = enable_if_t<(sizeof...(A) > 1)>>
  constexpr explicit packed_vec(A... a) : packed_vec(V(a...)) {}
  template <class U>
  constexpr explicit packed_vec(vec<U, 4> v) : packed_vec(V(v)) {}
  constexpr operator V() const { return V(x, y, z, w); }
  template <class A, class = enable_if_t<is_arithmetic_v<A>>>
  constexpr packed_vec& operator=(A s) {
    return *this = V(s);
  }
  constexpr packed_vec& operator=(V v) {
    x = v.x;
    y = v.y;
    z = v.z;
    w = v.w;
    return *this;
  }

  constexpr T& operator[](size_t i) { return (&x)[i]; }
  constexpr const T& operator[](size_t i) const { return (&x)[i]; }

  MSL_ARITHMETIC(MSL_PACKED_OP, _)
  MSL_ARITHMETIC(MSL_PACKED_ASSIGN, _)
  MSL_COMPARISONS(MSL_PACKED_OP, _)
  constexpr V operator+() const { return *this; }
  constexpr V operator-() const { return -V(*this); }
  constexpr V operator~() const { return ~V(*this); }
  constexpr vec<bool, 4> operator!() const { return !V(*this); }

#include "swizzle4.inc"
};

// A bfloat beside float vectors. No constructor says this: calls of the library's functions with a
// bfloat would be ambiguous.
#define MSL_WITH_BFLOAT(op)                                           \
  template <int N>                                                    \
  constexpr vec<float, N> operator op(bfloat a, vec<float, N> b) {    \
    return a.value() op b;                                            \
  }                                                                   \
  template <int N>                                                    \
  constexpr vec<float, N> operator op(vec<float, N> a, bfloat b) {    \
    return a op b.value();                                            \
  }                                                                   \
  template <int N>                                                    \
  constexpr vec<float, N>& operator op##=(vec<float, N>& a, bfloat b) { \
    return a = a op b.value();                                        \
  }
MSL_WITH_BFLOAT(+)
MSL_WITH_BFLOAT(-)
MSL_WITH_BFLOAT(*)
MSL_WITH_BFLOAT(/)
#undef MSL_WITH_BFLOAT

// ---- what generic code asks about a value
template <class T>
inline constexpr bool msl_is_scalar = is_arithmetic_v<T>;
template <class T>
struct msl_shape {
  using element = T;
  static constexpr int size = 1;
};
template <class T, int N>
struct msl_shape<vec<T, N>> {
  using element = T;
  static constexpr int size = N;
};
template <class T>
using vec_element_t = typename msl_shape<T>::element;
template <class T, int N>
using msl_vec_or_scalar = conditional_t<N == 1, T, vec<T, N == 1 ? 2 : N>>;

template <class T>
struct vec_elements : integral_constant<ushort, msl_shape<T>::size> {};
template <class T, int N>
struct numeric_limits<vec<T, N>> : numeric_limits<T> {};

// f(element, ...) of each component.
template <class T, class F, class... A>
constexpr auto msl_map(F f, vec<T, 2> a, A... b) {
  using R = decltype(f(a.x, b.x...));
  return vec<R, 2>(f(a.x, b.x...), f(a.y, b.y...));
}
template <class T, class F, class... A>
constexpr auto msl_map(F f, vec<T, 3> a, A... b) {
  using R = decltype(f(a.x, b.x...));
  return vec<R, 3>(f(a.x, b.x...), f(a.y, b.y...), f(a.z, b.z...));
}
template <class T, class F, class... A>
constexpr auto msl_map(F f, vec<T, 4> a, A... b) {
  using R = decltype(f(a.x, b.x...));
  return vec<R, 4>(f(a.x, b.x...), f(a.y, b.y...), f(a.z, b.z...), f(a.w, b.w...));
}

}  // namespace metal
namespace _msl {
// `uint4 v = {a, b}`: the values of one list, of several types; the rest is zero.
template <class... A>
struct Braced {
  static constexpr int kSize = 0;
  template <class V>
  constexpr void put(V&, int) const {}
};
template <class A, class... B>
struct Braced<A, B...> {
  static constexpr int kSize = metal::msl_shape<A>::size + Braced<B...>::kSize;
  A first;
  Braced<B...> others;

  template <class T, int N>
  constexpr operator metal::vec<T, N>() const {
    static_assert(kSize <= N, "more initial values than the vector has components");
    metal::vec<T, N> v(T(0));
    put(v, 0);
    return v;
  }
  template <class T, int N>
  constexpr void put(metal::vec<T, N>& v, int at) const {
    if constexpr (metal::msl_shape<A>::size == 1) {
      v[at] = T(first);
    } else {
      for (int i = 0; i < metal::msl_shape<A>::size; ++i) v[at + i] = T(first[i]);
    }
    others.put(v, at + metal::msl_shape<A>::size);
  }
};
constexpr Braced<> braced() { return {}; }
template <class A, class... B>
constexpr Braced<A, B...> braced(A first, B... others) {
  return {first, braced(others...)};
}
}  // namespace _msl

#define MSL_VECTOR_NAMES(T, name)                   \
  typedef metal::vec<T, 2> name##2;                 \
  typedef metal::vec<T, 3> name##3;                 \
  typedef metal::vec<T, 4> name##4;                 \
  typedef metal::packed_vec<T, 2> packed_##name##2; \
  typedef metal::packed_vec<T, 3> packed_##name##3; \
  typedef metal::packed_vec<T, 4> packed_##name##4; \
  namespace metal {                                 \
  using ::name##2;                                  \
  using ::name##3;                                  \
  using ::name##4;                                  \
  using ::packed_##name##2;                         \
  using ::packed_##name##3;                         \
  using ::packed_##name##4;                         \
  }
MSL_VECTOR_NAMES(bool, bool)
MSL_VECTOR_NAMES(char, char)
MSL_VECTOR_NAMES(uchar, uchar)
MSL_VECTOR_NAMES(short, short)
MSL_VECTOR_NAMES(ushort, ushort)
MSL_VECTOR_NAMES(int, int)
MSL_VECTOR_NAMES(uint, uint)
MSL_VECTOR_NAMES(long, long)
MSL_VECTOR_NAMES(ulong, ulong)
MSL_VECTOR_NAMES(half, half)
MSL_VECTOR_NAMES(bfloat, bfloat)
MSL_VECTOR_NAMES(float, float)
namespace metal {
using ::bfloat;
using ::half;
using ::uchar;
using ::uint;
using ::ulong;
using ::ushort;
}  // namespace metal
