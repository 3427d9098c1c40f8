// <metal_uniform>: a value that is the same in all threads, which on a CPU says nothing more. And
// <metal_logging>: shader logging is off unless a library is compiled with it, and then its calls
// are left out.
#pragma once

#include "math.h"

namespace metal {

template <class T>
struct uniform {
  T _value;

  uniform() = default;
  constexpr uniform(T value) : _value(value) {}
  template <class U>
  constexpr explicit uniform(uniform<U> other) : _value(T(other._value)) {}
  constexpr operator T() const { return _value; }

#define MSL_UNIFORM_ASSIGN(op) \
  constexpr uniform& operator op##=(T by) { return _value op## = by, *this; }
  // clang-format off
  MSL_UNIFORM_ASSIGN(+) MSL_UNIFORM_ASSIGN(-) MSL_UNIFORM_ASSIGN(*) MSL_UNIFORM_ASSIGN(/)
  MSL_UNIFORM_ASSIGN(%) MSL_UNIFORM_ASSIGN(&) MSL_UNIFORM_ASSIGN(|) MSL_UNIFORM_ASSIGN(^)
  MSL_UNIFORM_ASSIGN(<<) MSL_UNIFORM_ASSIGN(>>)
  // clang-format on
#undef MSL_UNIFORM_ASSIGN
              constexpr uniform&
              operator++() {
    return ++_value, *this;
  }
  constexpr uniform& operator--() { return --_value, *this; }
  constexpr uniform operator++(int) {
    uniform old = *this;
    ++_value;
    return old;
  }
  constexpr uniform operator--(int) {
    uniform old = *this;
    --_value;
    return old;
  }
};
template <class T>
constexpr uniform<T> make_uniform(T value) {
  return uniform<T>(value);
}
template <class T>
constexpr bool is_uniform_v = false;
template <class T>
constexpr bool is_uniform_v<uniform<T>> = true;

struct os_log {
  constexpr os_log(constant char*, constant char*) {}
#define MSL_LOG(name)   \
  template <class... A> \
  void name(constant char*, A...) const {}
  // clang-format off
  MSL_LOG(log) MSL_LOG(log_debug) MSL_LOG(log_info) MSL_LOG(log_error) MSL_LOG(log_fault)
  // clang-format on
#undef MSL_LOG
};
constant constexpr os_log os_log_default(nullptr, nullptr);

}  // namespace metal
