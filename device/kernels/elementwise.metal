// Elementwise operators of floats: binary with broadcasting, comparisons, unary; conversions and sums of
// many. Those of integers are in integers.metal, functions in functions.metal.

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

BINARY_FLOATS("add", Add)
BINARY_FLOATS("sub", Sub)
BINARY_FLOATS("mul", Mul)
BINARY_FLOATS("div", Div)

// ---- comparisons --------------------------------------------------------------------------------

struct Equal {
  bool operator()(float a, float b) const { return a == b; }
};
struct NotEqual {
  bool operator()(float a, float b) const { return a != b; }
};
struct Greater {
  bool operator()(float a, float b) const { return a > b; }
};
struct GreaterEqual {
  bool operator()(float a, float b) const { return a >= b; }
};
struct ApproximateEqual {
  float tolerance;
  bool operator()(float a, float b) const { return abs(a - b) <= tolerance; }
};

// Less and LessEqual are Greater and GreaterEqual the other way round.
COMPARE_FLOATS("equal", Equal)
COMPARE_FLOATS("not_equal", NotEqual)
COMPARE_FLOATS("greater", Greater)
COMPARE_FLOATS("greater_equal", GreaterEqual)
INSTANTIATE_KERNEL("approximate_equal_float_11", elementwise_2, ApproximateEqual, float, 1, 1, bool)

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

// ---- conversions --------------------------------------------------------------------------------

template <typename From, typename To>
kernel void cast(device const From* x [[buffer(0)]], device To* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  using WideFrom = typename wide<From>::type;
  using WideTo = typename wide<To>::type;
  out[i] = To(WideTo(WideFrom(x[i])));
}

#define CAST(from, to) INSTANTIATE_KERNEL("cast_" #from "_" #to, cast, from, to)
#define CAST_FROM(from)         \
  CAST(from, float)             \
  CAST(from, half)              \
  IF_BFLOAT(CAST(from, bfloat)) \
  CAST(from, char)              \
  CAST(from, short)             \
  CAST(from, int)               \
  CAST(from, long)              \
  CAST(from, uchar)             \
  CAST(from, ushort)            \
  CAST(from, uint)              \
  CAST(from, ulong)             \
  CAST(from, bool)
CAST_FROM(float)
CAST_FROM(half)
IF_BFLOAT(CAST_FROM(bfloat))
CAST_FROM(char)
CAST_FROM(short)
CAST_FROM(int)
CAST_FROM(long)
CAST_FROM(uchar)
CAST_FROM(ushort)
CAST_FROM(uint)
CAST_FROM(ulong)
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
IF_BFLOAT(INSTANTIATE_KERNEL("add_n_bfloat", add_n, bfloat))
INSTANTIATE_KERNEL("add_n_float2", add_n, float2)
INSTANTIATE_KERNEL("add_n_uchar", add_n, uchar)
INSTANTIATE_KERNEL("add_n_ushort", add_n, ushort)
INSTANTIATE_KERNEL("add_n_uint", add_n, uint)
INSTANTIATE_KERNEL("add_n_ulong", add_n, ulong)
