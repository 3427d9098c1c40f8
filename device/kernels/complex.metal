// Elementwise operators of complex numbers, and conversions to and from them. Named as those of other types
// that the same kernels launch.

#include "device/kernels/complex_functions.metal.h"
#include "device/kernels/elementwise.metal.h"

using namespace metal;

// elementwise_1 and elementwise_2 of complex numbers. A processor's compiler takes several elements at a time where it
// sees no vectors: parts are read and written one by one there.
#if defined(__METAL_CPU__)
inline float2 complex_at(device const float2* a, ulong i) {
  device const float* const parts = (device const float*)a;
  return float2(parts[2 * i], parts[2 * i + 1]);
}
inline void put_complex(device float2* out, ulong i, float2 value) {
  device float* const parts = (device float*)out;
  parts[2 * i] = value.x;
  parts[2 * i + 1] = value.y;
}
#else
inline float2 complex_at(device const float2* a, ulong i) { return a[i]; }
inline void put_complex(device float2* out, ulong i, float2 value) { out[i] = value; }
#endif
inline void put_complex(device float* out, ulong i, float value) { out[i] = value; }

template <typename Formula, typename Out>
kernel void complex_1(device const float2* a [[buffer(0)]], device Out* out [[buffer(1)]],
                      constant ulong& first [[buffer(2)]],
                      constant FormulaFloats<Formula>& formula [[buffer(3)]],
                      uint i [[thread_position_in_grid]]) {
  const Formula f = thread_copy(formula);
  put_complex(out + first, i, f(complex_at(a + first, i)));
}
template <typename Formula, int StrideA, int StrideB>
kernel void complex_2(device const float2* a [[buffer(0)]], device const float2* b [[buffer(1)]],
                      device float2* out [[buffer(2)]], constant ulong& first [[buffer(3)]],
                      constant FormulaFloats<Formula>& formula [[buffer(4)]],
                      uint i [[thread_position_in_grid]]) {
  const Formula f = thread_copy(formula);
  const float2 x = complex_at(a + first * StrideA, i * StrideA);
  put_complex(out + first, i, f(x, complex_at(b + first * StrideB, i * StrideB)));
}

#define COMPLEX_1(name, Name, Out, expression)                       \
  struct Name {                                                      \
    METAL_FUNC Out operator()(float2 x) const { return expression; } \
  };                                                                 \
  INSTANTIATE_KERNEL(name "_float2", complex_1, Name, Out)
COMPLEX_1("real", Real, float, x.x)
COMPLEX_1("imag", Imag, float, x.y)
COMPLEX_1("angle", Angle, float, arc_tangent_2(x.y, x.x))
COMPLEX_1("abs", Magnitude, float, magnitude(x))
COMPLEX_1("conj", Conj, float2, conjugate(x))
COMPLEX_1("neg", Negative, float2, -x)
COMPLEX_1("square", Square, float2, times(x, x))
COMPLEX_1("reciprocal", Reciprocal, float2, reciprocal(x))
COMPLEX_1("sign", Sign, float2, sign_of(x))
COMPLEX_1("exp", Exp, float2, exponential(x))
COMPLEX_1("log", Log, float2, logarithm(x))
COMPLEX_1("sqrt", Sqrt, float2, root(x))
COMPLEX_1("rsqrt", Rsqrt, float2, reciprocal(root(x)))
COMPLEX_1("acos", Acos, float2, arc_cosine_of(x))
COMPLEX_1("acosh", Acosh, float2, arc_cosine_h(x))
COMPLEX_1("asin", Asin, float2, arc_sine_of(x))
COMPLEX_1("asinh", Asinh, float2, turned_back(arc_sine_of(turned(x))))
COMPLEX_1("atan", Atan, float2, turned_back(arc_tangent_h(turned(x))))
COMPLEX_1("atanh", Atanh, float2, arc_tangent_h(x))
COMPLEX_1("cos", Cos, float2, cosine_h(turned(x)))
COMPLEX_1("cosh", Cosh, float2, cosine_h(x))
COMPLEX_1("expm1", Expm1, float2, exponential_less_1(x))
COMPLEX_1("log1p", Log1p, float2, logarithm_of_1_and(x))
COMPLEX_1("sigmoid", Sigmoid, float2, sigmoid(x))
COMPLEX_1("sin", Sin, float2, sine(x))
COMPLEX_1("sinh", Sinh, float2, sine_h(x))
COMPLEX_1("tan", Tan, float2, turned_back(tangent_h(turned(x))))
COMPLEX_1("tanh", Tanh, float2, tangent_h(x))

inline float2 unless(bool without, float2 x) {
  return float2(without ? 0.0f : x.x, without ? 0.0f : x.y);
}

#define COMPLEX_2(name, Name, a, b, expression)                        \
  struct Name {                                                        \
    float2 operator()(float2 a, float2 b) const { return expression; } \
  };                                                                   \
  INSTANTIATE_KERNEL(name "_float2_11", complex_2, Name, 1, 1)         \
  INSTANTIATE_KERNEL(name "_float2_10", complex_2, Name, 1, 0)         \
  INSTANTIATE_KERNEL(name "_float2_01", complex_2, Name, 0, 1)         \
  INSTANTIATE_KERNEL(name "_float2_strided", binary_strided, Name, float2)
COMPLEX_2("add", Add, a, b, a + b)
COMPLEX_2("sub", Sub, a, b, a - b)
COMPLEX_2("mul", Mul, a, b, times(a, b))
COMPLEX_2("div", Div, a, b, quotient(a, b))
COMPLEX_2("div_no_nan", DivNoNan, a, b, unless(nothing(b), quotient(a, b)))
COMPLEX_2("mul_no_nan", MulNoNan, a, b, unless(nothing(b), times(a, b)))
COMPLEX_2("xdivy", Xdivy, a, b, unless(nothing(a), quotient(a, b)))
COMPLEX_2("xlogy", Xlogy, a, b, unless(nothing(a), times(a, logarithm(b))))
COMPLEX_2("xlog1py", Xlog1py, a, b, unless(nothing(a), times(a, logarithm_of_1_and(b))))
COMPLEX_2("pow", Pow, a, b, power(a, b))
COMPLEX_2("squared_difference", SquaredDifference, a, b, times(a - b, conjugate(a - b)))

// Gradients: the operands in the op's order, conjugated where TensorFlow does it here and not before.
#define COMPLEX_SLOPE(name, Name, expression)                                 \
  struct Name {                                                               \
    float2 operator()(float2 y, float2 gradient) const { return expression; } \
  };                                                                          \
  INSTANTIATE_KERNEL(name "_float2_11", complex_2, Name, 1, 1)
COMPLEX_SLOPE("sqrt_grad", SqrtGrad,
              unless(nothing(gradient), quotient(0.5f * gradient, conjugate(y))))
COMPLEX_SLOPE("reciprocal_grad", ReciprocalGrad,
              unless(nothing(gradient), -times(times(conjugate(y), gradient), conjugate(y))))
COMPLEX_SLOPE("rsqrt_grad", RsqrtGrad,
              unless(nothing(gradient),
                     times(-0.5f * gradient,
                           times(conjugate(y), times(conjugate(y), conjugate(y))))))
COMPLEX_SLOPE("sigmoid_grad", SigmoidGrad, times(gradient, times(y, float2(1.0f, 0.0f) - y)))
COMPLEX_SLOPE("tanh_grad", TanhGrad, times(gradient, float2(1.0f, 0.0f) - times(y, y)))

struct Equal {
  bool operator()(float2 a, float2 b) const { return a.x == b.x && a.y == b.y; }
};
struct NotEqual {
  bool operator()(float2 a, float2 b) const { return a.x != b.x || a.y != b.y; }
};
COMPARE_FEW("equal", Equal, float2)
COMPARE_FEW("not_equal", NotEqual, float2)

// Joins two real numbers.
struct Join {
  float2 operator()(float a, float b) const { return float2(a, b); }
};
INSTANTIATE_KERNEL("complex_float_11", elementwise_2, Join, float, 1, 1, float2)
INSTANTIATE_KERNEL("complex_float_10", elementwise_2, Join, float, 1, 0, float2)
INSTANTIATE_KERNEL("complex_float_01", elementwise_2, Join, float, 0, 1, float2)
INSTANTIATE_KERNEL("complex_float_strided", binary_strided, Join, float, float2)

// ---- conversions: a real number has no imaginary part, and that of a complex one is dropped -----

template <typename From>
kernel void cast_to_complex(device const From* x [[buffer(0)]], device float2* out [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
  out[i] = float2(float(x[i]), 0.0f);
}
template <typename To>
kernel void cast_from_complex(device const float2* x [[buffer(0)]], device To* out [[buffer(1)]],
                              uint i [[thread_position_in_grid]]) {
  out[i] = To(typename wide<To>::type(x[i].x));
}
kernel void cast_float2_float2(device const float2* x [[buffer(0)]],
                               device float2* out [[buffer(1)]],
                               uint i [[thread_position_in_grid]]) {
  out[i] = x[i];
}

#define CAST(type)                                                   \
  INSTANTIATE_KERNEL("cast_" #type "_float2", cast_to_complex, type) \
  INSTANTIATE_KERNEL("cast_float2_" #type, cast_from_complex, type)
CAST(float)
CAST(half)
IF_BFLOAT(CAST(bfloat))
CAST(char)
CAST(short)
CAST(int)
CAST(long)
CAST(uchar)
CAST(ushort)
CAST(uint)
CAST(ulong)
CAST(bool)
