// Additions to a variable, and subtractions. A tensor that is read and written by one name is known to a
// compiler as one: under two it would look in each call whether they overlap, and go element by element.

#include "kernels/runtime/elementwise.metal.h"

using namespace metal;

template <typename Formula, typename T>
kernel void update(device T* var [[buffer(0)]], device const T* value [[buffer(1)]],
                   constant ulong& first [[buffer(2)]],
                   constant FormulaFloats<Formula>& formula [[buffer(3)]],
                   uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const Formula f = thread_copy(formula);
  (var + first)[i] = T(f(Wide((var + first)[i]), Wide((value + first)[i])));
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return T(a + b);
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return T(a - b);
  }
};

#define UPDATE(name, formula)                                            \
  INSTANTIATE_KERNEL(name "_float", update, formula, float)              \
  INSTANTIATE_KERNEL(name "_half", update, formula, half)                \
  IF_BFLOAT(INSTANTIATE_KERNEL(name "_bfloat", update, formula, bfloat)) \
  INSTANTIATE_KERNEL(name "_uchar", update, formula, uchar)              \
  INSTANTIATE_KERNEL(name "_ushort", update, formula, ushort)            \
  INSTANTIATE_KERNEL(name "_uint", update, formula, uint)                \
  INSTANTIATE_KERNEL(name "_ulong", update, formula, ulong)

UPDATE("update_add", Add)
UPDATE("update_sub", Sub)
