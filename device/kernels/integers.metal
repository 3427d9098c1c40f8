// Elementwise operators of integers and bools. Ops that do not depend on the sign have the shaders of
// the unsigned types alone.

#include "device/kernels/elementwise.metal.h"

using namespace metal;

#define INTEGER_OPERATOR(Name, expression) \
  struct Name {                            \
    template <typename T>                  \
    T operator()(T a, T b) const {         \
      return T(expression);                \
    }                                      \
  };
INTEGER_OPERATOR(Add, a + b)
INTEGER_OPERATOR(Sub, a - b)
INTEGER_OPERATOR(Mul, a* b)
INTEGER_OPERATOR(SquaredDifference, (a - b) * (a - b))
INTEGER_OPERATOR(And, a& b)
INTEGER_OPERATOR(Or, a | b)
INTEGER_OPERATOR(Xor, a ^ b)
INTEGER_OPERATOR(Maximum, a > b ? a : b)
INTEGER_OPERATOR(Minimum, a < b ? a : b)
INTEGER_OPERATOR(TruncateDiv, a / b)
INTEGER_OPERATOR(TruncateMod, a % b)

struct FloorDiv {
  template <typename T>
  T operator()(T a, T b) const {
    const T quotient = a / b;
    return T(quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
  }
};
struct FloorMod {
  template <typename T>
  T operator()(T a, T b) const {
    const T rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? T(rest + b) : rest;
  }
};

// A count of bits that a type does not have is its last one, and a negative one 0, as in TensorFlow:
// the type has to be the one that is given.
template <typename T>
inline T shift_count(T b) {
  const T last = T(8 * sizeof(T) - 1);
  return b < T(0) ? T(0) : b > last ? last : b;
}
struct LeftShift {
  template <typename T>
  T operator()(T a, T b) const {
    return T(ulong(a) << ulong(shift_count(b)));
  }
};
INTEGER_OPERATOR(RightShift, a >> shift_count(b))

// By squaring. To a negative power 0, as on TensorFlow's other GPUs.
struct Power {
  template <typename T>
  T operator()(T a, T b) const {
    if (b < 0) return T(0);
    T result = T(1);
    for (T factor = a; b != 0; b = T(b >> 1)) {
      if (b & 1) result = T(result * factor);
      factor = T(factor * factor);
    }
    return result;
  }
};

#define INTEGER_COMPARISON(Name, expression) \
  struct Name {                              \
    template <typename T>                    \
    bool operator()(T a, T b) const {        \
      return expression;                     \
    }                                        \
  };
INTEGER_COMPARISON(Equal, a == b)
INTEGER_COMPARISON(NotEqual, a != b)
INTEGER_COMPARISON(Greater, a > b)
INTEGER_COMPARISON(GreaterEqual, a >= b)

#define SIGNLESS(name, op)     \
  BINARY_FEW(name, op, uchar)  \
  BINARY_FEW(name, op, ushort) \
  BINARY_FEW(name, op, uint)   \
  BINARY(name, op, ulong)
// int32 tensors are in host memory where TensorFlow has a kernel for that.
#define SIGNED(name, op)       \
  BINARY_FEW(name, op, uchar)  \
  BINARY_FEW(name, op, char)   \
  BINARY_FEW(name, op, ushort) \
  BINARY_FEW(name, op, short)  \
  BINARY_FEW(name, op, uint)   \
  BINARY(name, op, long)       \
  BINARY(name, op, ulong)

SIGNLESS("add", Add)
// BiasAdd's of smaller types.
#define BIAS_ROWS(type)                                                     \
  INSTANTIATE_KERNEL("add_" #type "_rows_11", binary_rows, Add, type, 1, 1) \
  INSTANTIATE_KERNEL("add_" #type "_rows_10", binary_rows, Add, type, 1, 0)
BIAS_ROWS(uchar)
BIAS_ROWS(ushort)
BIAS_ROWS(uint)
SIGNLESS("sub", Sub)
SIGNLESS("mul", Mul)
SIGNLESS("bitwise_and", And)
SIGNLESS("bitwise_or", Or)
SIGNLESS("bitwise_xor", Xor)
SIGNED("left_shift", LeftShift)
BINARY_FEW("left_shift", LeftShift, int)
SIGNED("maximum", Maximum)
SIGNED("minimum", Minimum)
SIGNED("floor_div", FloorDiv)
SIGNED("floor_mod", FloorMod)
SIGNED("truncate_div", TruncateDiv)
BINARY_FEW("truncate_div", TruncateDiv, int)
SIGNED("right_shift", RightShift)
BINARY_FEW("right_shift", RightShift, int)
BINARY("truncate_mod", TruncateMod, long)
BINARY("squared_difference", SquaredDifference, ulong)
BINARY_FEW("pow", Power, char)
BINARY_FEW("pow", Power, short)
BINARY_FEW("pow", Power, int)
BINARY("pow", Power, long)

#define COMPARE_SIGNLESS(name, op) \
  COMPARE_FEW(name, op, uchar)     \
  COMPARE_FEW(name, op, ushort)    \
  COMPARE_FEW(name, op, uint)      \
  COMPARE(name, op, ulong)
#define COMPARE_SIGNED(name, op) \
  COMPARE_FEW(name, op, uchar)   \
  COMPARE_FEW(name, op, char)    \
  COMPARE_FEW(name, op, ushort)  \
  COMPARE_FEW(name, op, short)   \
  COMPARE_FEW(name, op, uint)    \
  COMPARE(name, op, long)        \
  COMPARE(name, op, ulong)
COMPARE_SIGNLESS("equal", Equal)
COMPARE_SIGNLESS("not_equal", NotEqual)
COMPARE_SIGNED("greater", Greater)
COMPARE_SIGNED("greater_equal", GreaterEqual)

// ---- unary --------------------------------------------------------------------------------------

#define INTEGER_FUNCTION(Name, expression) \
  struct Name {                            \
    template <typename T>                  \
    T operator()(T x) const {              \
      return T(expression);                \
    }                                      \
  };
INTEGER_FUNCTION(Neg, T(0) - x)
INTEGER_FUNCTION(Square, x* x)
INTEGER_FUNCTION(Invert, ~x)
INTEGER_FUNCTION(Abs, x < 0 ? T(0) - x : x)
INTEGER_FUNCTION(Sign, x > 0 ? 1 : x < 0 ? -1 : 0)
INTEGER_FUNCTION(Same, x)
INTEGER_FUNCTION(Relu, x < 0 ? T(0) : x)
INTEGER_FUNCTION(Relu6, x < 0 ? T(0) : x > 6 ? T(6) : x)
// Rounded down; for values that have overflowed to less than 0, a processor's conversion of NaN.
struct Root {
  template <typename T>
  T operator()(T x) const {
    if (x < 0) return sizeof(T) < 4 ? T(0) : numeric_limits<T>::lowest();
    ulong root = ulong(sqrt(float(x)));
    while (root > 0 && (root > 0xffffffff || root * root > ulong(x))) --root;
    while (root < 0xffffffff && (root + 1) * (root + 1) <= ulong(x)) ++root;
    return T(root);
  }
};
struct Not {
  bool operator()(bool x) const { return !x; }
};
struct PopulationCount {
  template <typename T>
  uchar operator()(T x) const {
    return uchar(popcount(ulong(x)));
  }
};

#define UNARY_SIGNLESS(name, op)                                \
  INSTANTIATE_KERNEL(name "_uchar", elementwise_1, op, uchar)   \
  INSTANTIATE_KERNEL(name "_ushort", elementwise_1, op, ushort) \
  INSTANTIATE_KERNEL(name "_uint", elementwise_1, op, uint)     \
  INSTANTIATE_KERNEL(name "_ulong", elementwise_1, op, ulong)
#define UNARY_SIGNED(name, op)                                \
  INSTANTIATE_KERNEL(name "_char", elementwise_1, op, char)   \
  INSTANTIATE_KERNEL(name "_short", elementwise_1, op, short) \
  INSTANTIATE_KERNEL(name "_long", elementwise_1, op, long)
UNARY_SIGNLESS("neg", Neg)
UNARY_SIGNLESS("square", Square)
UNARY_SIGNLESS("invert", Invert)
UNARY_SIGNED("abs", Abs)
UNARY_SIGNED("sign", Sign)
#define UNARY_ALL(name, op) \
  UNARY_SIGNLESS(name, op)  \
  UNARY_SIGNED(name, op)    \
  INSTANTIATE_KERNEL(name "_int", elementwise_1, op, int)
UNARY_ALL("relu", Relu)
UNARY_ALL("relu6", Relu6)
UNARY_ALL("root", Root)
INSTANTIATE_KERNEL("round_int", elementwise_1, Same, int)
INSTANTIATE_KERNEL("round_long", elementwise_1, Same, long)
INSTANTIATE_KERNEL("logical_not_bool", elementwise_1, Not, bool)
#define POPULATION_COUNT(type) \
  INSTANTIATE_KERNEL("population_count_" #type, elementwise_1, PopulationCount, type, uchar)
POPULATION_COUNT(uchar)
POPULATION_COUNT(ushort)
POPULATION_COUNT(uint)
POPULATION_COUNT(ulong)

// ---- gradients: what is between 0 and 6 is so without its sign, too -----------------------------

#define SLOPE_SIGNLESS(name, op)                                         \
  INSTANTIATE_KERNEL(name "_uchar_11", elementwise_2, op, uchar, 1, 1)   \
  INSTANTIATE_KERNEL(name "_ushort_11", elementwise_2, op, ushort, 1, 1) \
  INSTANTIATE_KERNEL(name "_uint_11", elementwise_2, op, uint, 1, 1)     \
  INSTANTIATE_KERNEL(name "_ulong_11", elementwise_2, op, ulong, 1, 1)
INTEGER_OPERATOR(ReluGrad, b > 0 ? a : T(0))
INTEGER_OPERATOR(Relu6Grad, b > 0 && b < 6 ? a : T(0))
SLOPE_SIGNLESS("relu6_grad", Relu6Grad)
SLOPE_SIGNLESS("relu_grad", ReluGrad)
INSTANTIATE_KERNEL("relu_grad_char_11", elementwise_2, ReluGrad, char, 1, 1)
INSTANTIATE_KERNEL("relu_grad_short_11", elementwise_2, ReluGrad, short, 1, 1)
INSTANTIATE_KERNEL("relu_grad_int_11", elementwise_2, ReluGrad, int, 1, 1)
INSTANTIATE_KERNEL("relu_grad_long_11", elementwise_2, ReluGrad, long, 1, 1)
