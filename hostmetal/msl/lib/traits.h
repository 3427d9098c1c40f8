// <metal_type_traits>, <metal_limits>, <metal_array>: MSL's part of the C++ library.
#pragma once

#include "bfloat.h"

// The compiler's class for a braced list, which it wants in this namespace.
namespace std {
template <class T>
class initializer_list {
  const T* first_ = nullptr;
  decltype(sizeof(0)) size_ = 0;

 public:
  constexpr initializer_list() = default;
  constexpr decltype(sizeof(0)) size() const { return size_; }
  constexpr const T* begin() const { return first_; }
  constexpr const T* end() const { return first_ + size_; }
};
}  // namespace std

namespace metal {
using std::initializer_list;

template <class T, T v>
struct integral_constant {
  static constexpr constant T value = v;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return v; }
  constexpr T operator()() const { return v; }
};
template <bool b>
using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <class T>
struct type_identity {
  using type = T;
};
template <bool b, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> : type_identity<T> {};
template <bool b, class T = void>
using enable_if_t = typename enable_if<b, T>::type;
template <bool b, class T, class F>
struct conditional : type_identity<T> {};
template <class T, class F>
struct conditional<false, T, F> : type_identity<F> {};
template <bool b, class T, class F>
using conditional_t = typename conditional<b, T, F>::type;
template <class... B>
struct _disjunction : bool_constant<(bool(B::value) || ...)> {};
template <class... B>
struct _conjunction : bool_constant<(bool(B::value) && ...)> {};
template <class B>
struct _negation : bool_constant<!bool(B::value)> {};
template <class... B>
using disjunction = _disjunction<B...>;
template <class... B>
using conjunction = _conjunction<B...>;
template <class B>
using negation = _negation<B>;
template <class... B>
inline constexpr bool disjunction_v = _disjunction<B...>::value;
template <class... B>
inline constexpr bool conjunction_v = _conjunction<B...>::value;

template <class T>
using remove_const = type_identity<__remove_const(T)>;
template <class T>
using remove_volatile = type_identity<__remove_volatile(T)>;
template <class T>
using remove_cv = type_identity<__remove_cv(T)>;
template <class T>
using remove_reference = type_identity<__remove_reference_t(T)>;
template <class T>
using remove_pointer = type_identity<__remove_pointer(T)>;
template <class T>
using decay = type_identity<__decay(T)>;
template <class T>
using make_signed = type_identity<__make_signed(T)>;
template <class T>
using make_unsigned = type_identity<__make_unsigned(T)>;
template <class T>
using underlying_type = type_identity<__underlying_type(T)>;
template <class T>
using add_const = type_identity<const T>;
template <class T>
using remove_const_t = __remove_const(T);
template <class T>
using remove_volatile_t = __remove_volatile(T);
template <class T>
using remove_cv_t = __remove_cv(T);
template <class T>
struct remove_addrspace : type_identity<T> {};
#define MSL_REMOVE_ADDRSPACE(SPACE) \
  template <class T>                \
  struct remove_addrspace<SPACE T> : type_identity<T> {};
MSL_REMOVE_ADDRSPACE(device)
MSL_REMOVE_ADDRSPACE(threadgroup)
MSL_REMOVE_ADDRSPACE(_MSL_CONSTANT_SPACE)
template <class T>
using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T>
using remove_reference_t = __remove_reference_t(T);
template <class T>
using remove_pointer_t = __remove_pointer(T);
template <class T>
using decay_t = __decay(T);
template <class T>
using make_signed_t = __make_signed(T);
template <class T>
using make_unsigned_t = __make_unsigned(T);
template <class T>
using underlying_type_t = __underlying_type(T);
template <class T>
using add_const_t = const T;

#define MSL_TRAIT(name, ...)                     \
  template <class T>                             \
  struct name : bool_constant<(__VA_ARGS__)> {}; \
  template <class T>                             \
  inline constexpr bool name##_v = (__VA_ARGS__);
template <class T, class U>
struct is_same : bool_constant<__is_same(T, U)> {};
template <class T, class U>
inline constexpr bool is_same_v = __is_same(T, U);
template <class F, class T>
struct is_convertible : bool_constant<__is_convertible(F, T)> {};
template <class F, class T>
inline constexpr bool is_convertible_v = __is_convertible(F, T);
template <class B, class D>
struct is_base_of : bool_constant<__is_base_of(B, D)> {};
template <class B, class D>
inline constexpr bool is_base_of_v = __is_base_of(B, D);
template <class T, class... A>
struct is_constructible : bool_constant<__is_constructible(T, A...)> {};
template <class T, class... A>
inline constexpr bool is_constructible_v = __is_constructible(T, A...);
MSL_TRAIT(is_integral, __is_integral(T))
MSL_TRAIT(is_floating_point, is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, half> ||
                                 is_same_v<remove_cv_t<T>, bfloat>)
MSL_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
MSL_TRAIT(is_void, __is_void(T))
MSL_TRAIT(is_array, __is_array(T))
MSL_TRAIT(is_pointer, __is_pointer(T))
MSL_TRAIT(is_reference, __is_reference(T))
MSL_TRAIT(is_class, __is_class(T))
MSL_TRAIT(is_enum, __is_enum(T))
MSL_TRAIT(is_union, __is_union(T))
MSL_TRAIT(is_const, __is_const(T))
MSL_TRAIT(is_volatile, __is_volatile(T))
MSL_TRAIT(is_signed, is_floating_point_v<T> || (is_integral_v<T> && T(-1) < T(0)))
MSL_TRAIT(is_unsigned, is_integral_v<T> && !(T(-1) < T(0)))
MSL_TRAIT(is_scalar, is_arithmetic_v<T> || __is_enum(T) || __is_pointer(T))
MSL_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
MSL_TRAIT(is_standard_layout, __is_standard_layout(T))

template <class T>
struct rank : integral_constant<size_t, 0> {};
template <class T>
T&& declval() noexcept;
template <class T>
constexpr remove_reference_t<T>&& move(T&& t) {
  return static_cast<remove_reference_t<T>&&>(t);
}
template <class T>
constexpr void swap(T& a, T& b) {
  T t = a;
  a = b;
  b = t;
}
template <class T, T... i>
struct integer_sequence {
  static constexpr size_t size() { return sizeof...(i); }
};
template <size_t... i>
using index_sequence = integer_sequence<size_t, i...>;
template <size_t n>
using make_index_sequence = __make_integer_seq<integer_sequence, size_t, n>;

}  // namespace metal
namespace _msl {
// T without address space, const and volatile.
template <class T>
struct Plain : metal::type_identity<T> {};
template <class T>
struct Plain<const T> : Plain<T> {};
template <class T>
struct Plain<volatile T> : Plain<T> {};
template <class T>
struct Plain<__attribute__((opencl_global_device)) T> : Plain<T> {};
template <class T>
struct Plain<_MSL_CONSTANT_SPACE T> : Plain<T> {};
template <class T>
struct Plain<__attribute__((opencl_local)) T> : Plain<T> {};
template <class T>
struct Plain<const __attribute__((opencl_global_device)) T> : Plain<T> {};
template <class T>
struct Plain<const _MSL_CONSTANT_SPACE T> : Plain<T> {};
template <class T>
struct Plain<const __attribute__((opencl_local)) T> : Plain<T> {};
template <class T>
struct Plain<volatile __attribute__((opencl_global_device)) T> : Plain<T> {};
template <class T>
struct Plain<volatile __attribute__((opencl_local)) T> : Plain<T> {};
template <class T>
struct Plain<const volatile __attribute__((opencl_global_device)) T> : Plain<T> {};
template <class T>
struct Plain<const volatile __attribute__((opencl_local)) T> : Plain<T> {};
template <class T>
using plain = typename Plain<T>::type;

template <class V, class T>
constexpr bool is_volatile_place_of = false;
template <class V, class T>
constexpr bool is_volatile_place_of<volatile V&, T> = __is_same(plain<V>, T);

// An operand of ?: as a value, where it is an object of class type in some address space; else
// unchanged.
template <class T>
constexpr decltype(auto) copied(T&& operand) {
  using Object = __remove_reference_t(T);
  if constexpr (__is_class(Object)) {
    return plain<Object>(operand);
  } else {
    return static_cast<T&&>(operand);
  }
}
// An integer beside a bfloat in ?:, which becomes one; the bfloat does not become this.
template <class I>
struct Integer {
  I value;
  constexpr operator I() const { return value; }
  constexpr operator bfloat() const { return value; }
};
template <class T>
constexpr decltype(auto) beside_bfloat(T&& operand) {
  if constexpr (__is_integral(__remove_reference_t(T))) {
    return Integer<plain<__remove_reference_t(T)>>{operand};
  } else {
    return copied(static_cast<T&&>(operand));
  }
}
// The return type of a member function, in the address space where its object lies: `this` knows
// none.
#define MSL_IN_SPACE(space)                        \
  template <class T>                               \
  constexpr space T& in_##space(T& place) {        \
    return (space T&)place;                        \
  }                                                \
  template <class T>                               \
  constexpr space T* in_##space(T* const& place) { \
    return (space T*)place;                        \
  }
MSL_IN_SPACE(device)
MSL_IN_SPACE(constant)
MSL_IN_SPACE(threadgroup)
#undef MSL_IN_SPACE
// `&x[i].y`, and x[i] that becomes a reference, where one operator[] stands for those of all address
// spaces, as the library's own do: the element is in the space of x. O: the type of the object whose
// operator[] is called.
template <class O>
struct Beside {
  template <class T>
  using type = T;
};
#define MSL_BESIDE(space)        \
  template <class O>             \
  struct Beside<space O> {       \
    template <class T>           \
    using type = space T;        \
  };                             \
  template <class O>             \
  struct Beside<const space O> { \
    template <class T>           \
    using type = const space T;  \
  };
MSL_BESIDE(device)
MSL_BESIDE(threadgroup)
#undef MSL_BESIDE
template <class O>
struct Beside<constant O> {
  template <class T>
  using type = constant T;
};
// The return type of operator[] or of a member function of an X.
template <class X, class R>
struct Placed : metal::type_identity<R> {};
template <class X, class R>
struct Placed<X&, R&> {
  static constexpr bool lacks = __is_class(plain<X>) && __is_same(plain<R>, __remove_cv(R));
  using In = typename Beside<X>::template type<R>;
  using type = metal::conditional_t<lacks, In, R>&;
};
// Only for the types of expressions that addresses are taken of.
template <class X, class I>
auto element(X&& x, I i) -> typename Placed<X&, decltype((x[i]))>::type;
template <class X, class R>
auto member_of(X&& x, R&& r) -> typename Placed<X&, R&&>::type;
template <class O, class T>
constexpr bool lacks_space =
    __is_lvalue_reference(O) && __is_same(plain<T>, plain<__remove_reference_t(O)>) &&
    __is_same(plain<T>, __remove_cv(T));
template <class O, class T>
constexpr auto address(T* at) {
  if constexpr (lacks_space<O, T>) {
    return &(O)*at;
  } else {
    return at;
  }
}
template <class O, class T>
constexpr decltype(auto) reference(T&& at) {
  if constexpr (lacks_space<O, __remove_reference_t(T)>) {
    return (O)at;
  } else if constexpr (__is_lvalue_reference(T)) {
    return static_cast<T>(at);
  } else {
    return T(at);
  }
}
}  // namespace _msl
namespace metal {

// ---- numeric_limits; programs specialise the base for types of their own
template <class T>
struct _numeric_limits_impl {
  static constexpr bool is_specialized = false;
};
template <class T>
struct numeric_limits : _numeric_limits_impl<T> {};
#define MSL_INT_LIMITS(T)                                                                        \
  template <>                                                                                    \
  struct numeric_limits<T> {                                                                     \
    static constexpr bool is_specialized = true, is_integer = true, is_exact = true;             \
    static constexpr bool is_signed = T(-1) < T(0), has_infinity = false, has_quiet_NaN = false; \
    static constexpr int digits = sizeof(T) * 8 - is_signed, radix = 2,                          \
                         digits10 = digits * 30103l / 100000;                                    \
    static constexpr T min() { return is_signed ? T(1ul << (is_signed ? digits : 0)) : T(0); }   \
    static constexpr T max() { return T(~0ul >> (64 - digits)); }                                \
    static constexpr T lowest() { return min(); }                                                \
    static constexpr T epsilon() { return 0; }                                                   \
    static constexpr T infinity() { return 0; }                                                  \
  };
MSL_INTS(MSL_INT_LIMITS)
template <>
struct numeric_limits<bool> {
  static constexpr bool is_specialized = true, is_integer = true, is_exact = true,
                        is_signed = false;
  static constexpr bool has_infinity = false, has_quiet_NaN = false;
  static constexpr int digits = 1, radix = 2;
  static constexpr bool min() { return false; }
  static constexpr bool max() { return true; }
  static constexpr bool lowest() { return false; }
};
#define MSL_FLOAT_LIMITS(T, DIGITS, DIGITS10, MIN, MAX, EPSILON, DENORM, MIN_EXP, MAX_EXP) \
  template <>                                                                              \
  struct numeric_limits<T> {                                                               \
    static constexpr bool is_specialized = true, is_integer = false, is_exact = false,     \
                          is_signed = true;                                                \
    static constexpr bool has_infinity = true, has_quiet_NaN = true, is_iec559 = true;     \
    static constexpr int digits = DIGITS, digits10 = DIGITS10, radix = 2;                  \
    static constexpr int min_exponent = MIN_EXP, max_exponent = MAX_EXP;                   \
    static constexpr T min() { return T(MIN); }                                            \
    static constexpr T max() { return T(MAX); }                                            \
    static constexpr T lowest() { return T(-(MAX)); }                                      \
    static constexpr T epsilon() { return T(EPSILON); }                                    \
    static constexpr T round_error() { return T(0.5f); }                                   \
    static constexpr T denorm_min() { return T(DENORM); }                                  \
    static constexpr T infinity() { return T(__builtin_inff()); }                          \
    static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }                       \
    static constexpr T signaling_NaN() { return T(__builtin_nanf("")); }                   \
  };
MSL_FLOAT_LIMITS(float, 24, 6, 0x1p-126f, 0x1.fffffep127f, 0x1p-23f, 0x1p-149f, -125, 128)
MSL_FLOAT_LIMITS(half, 11, 3, 0x1p-14f, 0x1.ffcp15f, 0x1p-10f, 0x1p-24f, -13, 16)
MSL_FLOAT_LIMITS(bfloat, 8, 2, 0x1p-126f, 0x1.fep127f, 0x1p-7f, 0x1p-133f, -125, 128)

// ---- array
template <class T, size_t N>
struct array {
  T _data[N];
  constexpr T& operator[](size_t i) { return _data[i]; }
  constexpr const T& operator[](size_t i) const { return _data[i]; }
  constexpr size_t size() const { return N; }
  constexpr bool empty() const { return N == 0; }
  constexpr T* data() { return _data; }
  constexpr const T* data() const { return _data; }
  constexpr T& front() { return _data[0]; }
  constexpr const T& front() const { return _data[0]; }
  constexpr T& back() { return _data[N - 1]; }
  constexpr const T& back() const { return _data[N - 1]; }
  constexpr T* begin() { return _data; }
  constexpr const T* begin() const { return _data; }
  constexpr T* end() { return _data + N; }
  constexpr const T* end() const { return _data + N; }
};

// Elements that lie elsewhere, in the address space of T.
template <class T>
struct array_ref {
  T* _data;
  size_t _size;
  constexpr array_ref() : _data(nullptr), _size(0) {}
  constexpr array_ref(T* data, size_t size) : _data(data), _size(size) {}
  constexpr T& operator[](size_t i) const { return _data[i]; }
  constexpr size_t size() const { return _size; }
  constexpr bool empty() const { return _size == 0; }
  constexpr T* data() const { return _data; }
  constexpr T* begin() const { return _data; }
  constexpr T* end() const { return _data + _size; }
};
template <class T>
constexpr array_ref<T> make_array_ref(T* data, size_t size) {
  return array_ref<T>(data, size);
}
template <class T, size_t N>
constexpr array_ref<T> make_array_ref(T (&data)[N]) {
  return array_ref<T>(data, N);
}
template <class T, size_t N>
constexpr array_ref<T> make_array_ref(array<T, N>& data) {
  return array_ref<T>(data.data(), N);
}
template <class T, size_t N>
constexpr array_ref<const T> make_array_ref(const array<T, N>& data) {
  return array_ref<const T>(data.data(), N);
}

using nullptr_t = decltype(nullptr);

}  // namespace metal

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_inff())
#define HUGE_VALH half(__builtin_inff())
#define MAXFLOAT 0x1.fffffep127f
#define MAXHALF half(0x1.ffcp15f)
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX_10_EXP 38
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MIN_EXP (-125)
#define FLT_RADIX 2
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define FLT_DECIMAL_DIG 9
#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define HALF_MAX_10_EXP 4
#define HALF_MAX_EXP 16
#define HALF_MIN_10_EXP (-4)
#define HALF_MIN_EXP (-13)
#define HALF_RADIX 2
#define HALF_MAX half(0x1.ffcp15f)
#define HALF_MIN half(0x1p-14f)
#define HALF_EPSILON half(0x1p-10f)
#define HUGE_VALBF bfloat(__builtin_inff())
#define MAXBFLOAT bfloat(0x1.fep127f)
#define BFLT_DIG 2
#define BFLT_MANT_DIG 8
#define BFLT_MAX_10_EXP 38
#define BFLT_MAX_EXP 128
#define BFLT_MIN_10_EXP (-37)
#define BFLT_MIN_EXP (-125)
#define BFLT_RADIX 2
#define BFLT_DECIMAL_DIG 4
#define BFLT_MAX bfloat(0x1.fep127f)
#define BFLT_MIN bfloat(0x1p-126f)
#define BFLT_EPSILON bfloat(0x1p-7f)
#define BFLT_TRUE_MIN bfloat(0x1p-133f)
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX SCHAR_MAX
#define CHAR_MIN SCHAR_MIN
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-LONG_MAX - 1l)
#define ULONG_MAX 18446744073709551615ul
#define FP_ILOGB0 (-INT_MAX - 1)
#define FP_ILOGBNAN INT_MAX

#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.785398163397448309616f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f
#define M_E_H half(M_E_F)
#define M_LOG2E_H half(M_LOG2E_F)
#define M_LOG10E_H half(M_LOG10E_F)
#define M_LN2_H half(M_LN2_F)
#define M_LN10_H half(M_LN10_F)
#define M_PI_H half(M_PI_F)
#define M_PI_2_H half(M_PI_2_F)
#define M_PI_4_H half(M_PI_4_F)
#define M_1_PI_H half(M_1_PI_F)
#define M_2_PI_H half(M_2_PI_F)
#define M_2_SQRTPI_H half(M_2_SQRTPI_F)
#define M_SQRT2_H half(M_SQRT2_F)
#define M_SQRT1_2_H half(M_SQRT1_2_F)

#define M_E_BF bfloat(M_E_F)
#define M_LOG2E_BF bfloat(M_LOG2E_F)
#define M_LOG10E_BF bfloat(M_LOG10E_F)
#define M_LN2_BF bfloat(M_LN2_F)
#define M_LN10_BF bfloat(M_LN10_F)
#define M_PI_BF bfloat(M_PI_F)
#define M_PI_2_BF bfloat(M_PI_2_F)
#define M_PI_4_BF bfloat(M_PI_4_F)
#define M_1_PI_BF bfloat(M_1_PI_F)
#define M_2_PI_BF bfloat(M_2_PI_F)
#define M_2_SQRTPI_BF bfloat(M_2_SQRTPI_F)
#define M_SQRT2_BF bfloat(M_SQRT2_F)
#define M_SQRT1_2_BF bfloat(M_SQRT1_2_F)
