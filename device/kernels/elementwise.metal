// Elementwise operators: binary with broadcasting, unary, conversions, sums of many.

#include "device/kernels/elementwise.metal.h"

using namespace metal;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    return a / b;
  }
};

#define BINARY_NUMBERS(name, op) \
  BINARY(name, op, float)        \
  BINARY(name, op, half)         \
  BINARY(name, op, bfloat)       \
  BINARY(name, op, long)
BINARY_NUMBERS("add", Add)
BINARY_NUMBERS("sub", Sub)
BINARY_NUMBERS("mul", Mul)
BINARY("div", Div, float)
BINARY("div", Div, half)
BINARY("div", Div, bfloat)

struct FloorDiv {
  long operator()(long a, long b) const {
    const long quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }
};
struct FloorMod {
  long operator()(long a, long b) const {
    const long rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
BINARY("floor_div", FloorDiv, long)
BINARY("floor_mod", FloorMod, long)

// Variables of the narrower integers are only ever added to.
#define UPDATE(type)                                               \
  INSTANTIATE_KERNEL("add_" #type "_11", elementwise_2, Add, type) \
  INSTANTIATE_KERNEL("sub_" #type "_11", elementwise_2, Sub, type)
UPDATE(char)
UPDATE(uchar)
UPDATE(short)
UPDATE(ushort)
UPDATE(int)
UPDATE(uint)
UPDATE(ulong)

// ---- comparisons --------------------------------------------------------------------------------

struct Greater {
  template <typename T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <typename T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};

// Less and LessEqual are these the other way round.
#define COMPARE_NUMBERS(name, op) \
  COMPARE(name, op, float)        \
  COMPARE(name, op, half)         \
  COMPARE(name, op, bfloat)       \
  COMPARE(name, op, long)
COMPARE_NUMBERS("greater", Greater)
COMPARE_NUMBERS("greater_equal", GreaterEqual)

// ---- unary --------------------------------------------------------------------------------------

struct Neg {
  template <typename T>
  T operator()(T x) const {
    return -x;
  }
};
struct Square {
  template <typename T>
  T operator()(T x) const {
    return x * x;
  }
};
struct Sqrt {
  template <typename T>
  T operator()(T x) const {
    return sqrt(x);
  }
};
struct Reciprocal {
  template <typename T>
  T operator()(T x) const {
    return T(1) / x;
  }
};
struct Rsqrt {
  template <typename T>
  T operator()(T x) const {
    return rsqrt(x);
  }
};

ELEMENTWISE_1("neg", Neg)
ELEMENTWISE_1("square", Square)
ELEMENTWISE_1("sqrt", Sqrt)
ELEMENTWISE_1("reciprocal", Reciprocal)
ELEMENTWISE_1("rsqrt", Rsqrt)
INSTANTIATE_KERNEL("neg_long", elementwise_1, Neg, long)
INSTANTIATE_KERNEL("square_long", elementwise_1, Square, long)

// ---- conversions --------------------------------------------------------------------------------

template <typename From, typename To>
kernel void cast(device const From* x [[buffer(0)]], device To* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  using WideFrom = typename wide<From>::type;
  using WideTo = typename wide<To>::type;
  out[i] = To(WideTo(WideFrom(x[i])));
}

#define CAST(from, to) INSTANTIATE_KERNEL("cast_" #from "_" #to, cast, from, to)
#define CAST_FROM(from) \
  CAST(from, float)     \
  CAST(from, half)      \
  CAST(from, bfloat)    \
  CAST(from, int)       \
  CAST(from, long)      \
  CAST(from, uchar)     \
  CAST(from, bool)
CAST_FROM(float)
CAST_FROM(half)
CAST_FROM(bfloat)
CAST_FROM(int)
CAST_FROM(long)
CAST_FROM(uchar)
CAST_FROM(bool)

// ---- AddN ---------------------------------------------------------------------------------------

// Inputs from params.inputs on are not touched. `out` may be any of them: each thread keeps to its
// own element.
template <typename T>
kernel void add_n(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                  device const T* c [[buffer(2)]], device const T* d [[buffer(3)]],
                  device const T* e [[buffer(4)]], device const T* f [[buffer(5)]],
                  device const T* g [[buffer(6)]], device const T* h [[buffer(7)]],
                  device T* out [[buffer(8)]], constant AddNParams& params [[buffer(9)]],
                  uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const uint n = params.inputs;
  Wide sum = Wide(a[i]);
  if (n > 1) sum += Wide(b[i]);
  if (n > 2) sum += Wide(c[i]);
  if (n > 3) sum += Wide(d[i]);
  if (n > 4) sum += Wide(e[i]);
  if (n > 5) sum += Wide(f[i]);
  if (n > 6) sum += Wide(g[i]);
  if (n > 7) sum += Wide(h[i]);
  out[i] = T(sum);
}

INSTANTIATE_KERNEL("add_n_float", add_n, float)
INSTANTIATE_KERNEL("add_n_half", add_n, half)
INSTANTIATE_KERNEL("add_n_bfloat", add_n, bfloat)
INSTANTIATE_KERNEL("add_n_long", add_n, long)
