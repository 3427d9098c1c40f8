// <metal_uniform>: a value that is the same in all threads, which on a CPU says nothing more.
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

}  // namespace metal
