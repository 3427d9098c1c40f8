// The arguments of os_log as metallib_log_argument, and the errors of a format, known while it is
// compiled.
#pragma once

#include "bfloat.h"
#include "log_conversion.h"
#include "vec.h"

namespace _msl {

// ---- arguments

template <class T>
struct LogType {
  static constexpr bool number = __is_enum(T);
  static constexpr unsigned kind = METALLIB_LOG_SIGNED, count = 1;
  typedef T Element;
};
#define MSL_LOG_TYPE(T, of)                         \
  template <>                                       \
  struct LogType<T> {                               \
    static constexpr bool number = true;            \
    static constexpr unsigned kind = of, count = 1; \
    typedef T Element;                              \
  };
MSL_LOG_TYPE(bool, METALLIB_LOG_UNSIGNED)
MSL_LOG_TYPE(char, METALLIB_LOG_SIGNED)
MSL_LOG_TYPE(_msl_schar, METALLIB_LOG_SIGNED)
MSL_LOG_TYPE(short, METALLIB_LOG_SIGNED)
MSL_LOG_TYPE(int, METALLIB_LOG_SIGNED)
MSL_LOG_TYPE(long, METALLIB_LOG_SIGNED)
MSL_LOG_TYPE(uchar, METALLIB_LOG_UNSIGNED)
MSL_LOG_TYPE(ushort, METALLIB_LOG_UNSIGNED)
MSL_LOG_TYPE(uint, METALLIB_LOG_UNSIGNED)
MSL_LOG_TYPE(ulong, METALLIB_LOG_UNSIGNED)
MSL_LOG_TYPE(half, METALLIB_LOG_FLOAT)
MSL_LOG_TYPE(float, METALLIB_LOG_FLOAT)
MSL_LOG_TYPE(double, METALLIB_LOG_FLOAT)
MSL_LOG_TYPE(bfloat, METALLIB_LOG_BFLOAT)
#undef MSL_LOG_TYPE
template <class T>
struct LogType<T*> {
  static constexpr bool number = true;
  static constexpr unsigned kind = METALLIB_LOG_POINTER, count = 1;
  typedef T* Element;
};
template <class T, int n>
struct LogVector {
  static constexpr bool number = true;
  static constexpr unsigned kind = LogType<T>::kind, count = n;
  typedef T Element;
};
template <class T, int n>
struct LogType<metal::vec<T, n>> : LogVector<T, n> {};
template <class T, int n>
struct LogType<metal::packed_vec<T, n>> : LogVector<T, n> {};

template <class T>
struct LogArgument {
  typedef LogType<T> Type;
  typedef typename Type::Element Element;
  static_assert(Type::number,
                "os_log takes numbers, vectors and pointers; pass a struct's or a matrix' parts");
  metallib_log_argument head;
  alignas(8) Element numbers[Type::count];

  LogArgument(const T& value)
      : head{uchar(Type::kind), uchar(sizeof(Element)), uchar(Type::count), {}} {
    if constexpr (Type::count == 1) {
      numbers[0] = value;
    } else {
      for (unsigned i = 0; i < Type::count; ++i) numbers[i] = value[i];
    }
  }
};
template <class... A>
struct LogArguments {};
template <class T, class... A>
struct LogArguments<T, A...> {
  LogArgument<T> first;
  LogArguments<A...> rest;
  LogArguments(const T& value, const A&... others) : first(value), rest{others...} {}
};
template <class T>
struct LogArguments<T> {
  LogArgument<T> first;
  LogArguments(const T& value) : first(value) {}
};

// ---- formats

enum LogFault {
  kLogRight,
  kLogString,
  kLogCount,
  kLogObject,
  kLogUnknown,
  kLogFew,
  kLogMany,
  kLogFit1,
  kLogFit2,
  kLogFit3,
  kLogFit4,
  kLogFitLater,
};

struct LogShape {
  unsigned kind, bytes, count;
};

// Whether a conversion takes what it gets, on a Mac too: integers of up to 4 bytes pass as int, and
// half and float as double, but for those in vectors.
constexpr bool log_fits(const LogConversion& c, const LogShape& shape) {
  if (c.count != shape.count) return false;
  if (c.letter == 'p') return shape.kind == METALLIB_LOG_POINTER;
  if (shape.kind == METALLIB_LOG_POINTER) return false;
  const bool real = shape.kind == METALLIB_LOG_FLOAT || shape.kind == METALLIB_LOG_BFLOAT;
  if (real != log_one_of(c.letter, "fFeEgGaA")) return false;
  if (shape.count > 1) return c.length == int(shape.bytes);
  return real || (shape.bytes == 8) == (c.length == 8);
}

template <class... A>
constexpr LogFault log_fault(const _MSL_CONSTANT_SPACE char* format) {
  constexpr unsigned n = sizeof...(A);
  constexpr LogShape shapes[n + 1] = {
      {LogType<A>::kind, sizeof(typename LogType<A>::Element), LogType<A>::count}..., {0, 0, 0}};
  unsigned used = 0;
  LogFault unfit = kLogRight;
  for (unsigned i = 0; format[i];) {
    if (format[i++] != '%') continue;
    const LogConversion c(format, i);
    i = c.at;
    if (c.letter == '%') continue;
    if (c.letter == 's' || c.letter == 'S') return kLogString;
    if (c.letter == 'n') return kLogCount;
    if (c.letter == '@' || c.letter == 'P') return kLogObject;
    if (!log_one_of(c.letter, "diouxXcfFeEgGaAp") || !c.letter) return kLogUnknown;
    used += c.stars;
    if (used >= n) return kLogFew;
    if (!unfit && !log_fits(c, shapes[used])) {
      unfit = used < 4 ? LogFault(kLogFit1 + used) : kLogFitLater;
    }
    ++used;
  }
  if (used < n) return kLogMany;
  return unfit;
}

}  // namespace _msl
