// Elementwise functions of floats, calculated in float.

#include "device/kernels/arc.metal.h"
#include "device/kernels/elementwise.metal.h"
#include "device/kernels/erf.metal.h"
#include "kernels/gemm/epilogue.metal.h"
#include "kernels/msl/exp_log.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

#define FUNCTION(name, Name, expression)                   \
  struct Name {                                            \
    float operator()(float x) const { return expression; } \
  };                                                       \
  ELEMENTWISE_1(name, Name)

FUNCTION("abs", Abs, abs(x))
FUNCTION("acos", Acos, arc_cosine(x))
FUNCTION("acosh", Acosh, acosh(x))
FUNCTION("asin", Asin, arc_sine(x))
FUNCTION("asinh", Asinh, asinh(x))
FUNCTION("atan", Atan, arc_tangent(x))
FUNCTION("ceil", Ceil, ceil(x))
FUNCTION("cos", Cos, cos(x))
FUNCTION("cosh", Cosh, cosh(x))
FUNCTION("expm1", Expm1, precise_expm1(x))
FUNCTION("floor", Floor, floor(x))
FUNCTION("log1p", Log1p, x < -1.0f ? NAN : precise_log1p(x))
FUNCTION("round", Round, rint(x))
FUNCTION("sign", Sign, x != x ? x : sign(x))
FUNCTION("sin", Sin, sin(x))
FUNCTION("sinh", Sinh, sinh(x))
FUNCTION("softsign", Softsign, x / (1.0f + abs(x)))
FUNCTION("tan", Tan, tan(x))

struct Atanh {
  float operator()(float x) const {
    const float size = abs(x);
    return copysign(0.5f * precise_log1p(2.0f * size / (1.0f - size)), x);
  }
};
ELEMENTWISE_1("atanh", Atanh)

// By erf's tail where 1 - erf(x) would cancel. The square's rounding would be the result's many
// times over: it is put back.
struct Erfc {
  float operator()(float x) const {
    const float size = abs(x);
    if (size < 0.5f) return 1.0f - error_function(x);
    if (size > 10.5f) return x < 0.0f ? 2.0f : 0.0f;
    const float coefficients[EPILOGUE_TAIL_TERMS] = EPILOGUE_TAIL_COEFFICIENTS;
    const float t = 1.0f / fma(EPILOGUE_TAIL_SCALE * 1.41421356f, size, 1.0f);
    float sum = coefficients[EPILOGUE_TAIL_TERMS - 1];
    for (int i = EPILOGUE_TAIL_TERMS - 2; i >= 0; --i) sum = fma(sum, t, coefficients[i]);
    const float square = size * size;
    const float tail = 2.0f * exp(-square) * (1.0f - fma(size, size, -square)) * t * sum;
    return x < 0.0f ? 2.0f - tail : x != x ? x : tail;
  }
};
ELEMENTWISE_1("erfc", Erfc)

#define PREDICATE(name, Name, expression)                             \
  struct Name {                                                       \
    bool operator()(float x) const { return expression; }             \
  };                                                                  \
  INSTANTIATE_KERNEL(name "_float", elementwise_1, Name, float, bool) \
  INSTANTIATE_KERNEL(name "_half", elementwise_1, Name, half, bool)   \
  IF_BFLOAT(INSTANTIATE_KERNEL(name "_bfloat", elementwise_1, Name, bfloat, bool))
PREDICATE("is_finite", IsFinite, isfinite(x))
PREDICATE("is_inf", IsInf, isinf(x))
PREDICATE("is_nan", IsNan, isnan(x))

// ---- two operands -------------------------------------------------------------------------------

#define FUNCTION_2(name, Name, expression)                          \
  struct Name {                                                     \
    float operator()(float a, float b) const { return expression; } \
  };                                                                \
  BINARY_FLOATS(name, Name)
FUNCTION_2("atan2", Atan2, arc_tangent_2(a, b))
FUNCTION_2("mul_no_nan", MulNoNan, b == 0.0f ? 0.0f : a * b)
FUNCTION_2("xdivy", Xdivy, a == 0.0f ? 0.0f : a / b)
FUNCTION_2("xlogy", Xlogy, a == 0.0f ? 0.0f : a * log(b))
FUNCTION_2("floor_div", FloorDiv, floor(a / b))
FUNCTION_2("truncate_div", TruncateDiv, trunc(a / b))

struct TruncateMod {
  float operator()(float a, float b) const { return fmod(a, b); }
};
BINARY("truncate_mod", TruncateMod, float)

struct FloorMod {
  float operator()(float a, float b) const {
    const float rest = fmod(a, b);
    return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
  }
};
BINARY_FLOATS("floor_mod", FloorMod)

// ---- gradients: the operands in the op's order --------------------------------------------------

#define GRADIENT(name, Name, first, second, expression)                      \
  struct Name {                                                              \
    float operator()(float first, float second) const { return expression; } \
  };                                                                         \
  SLOPE(name, Name)
// A zero gradient stays zero, as on TensorFlow's CPU, where y is 0 or infinite.
GRADIENT("sqrt_grad", SqrtGrad, y, gradient, gradient == 0.0f ? 0.0f : gradient / (y + y))
GRADIENT("reciprocal_grad", ReciprocalGrad, y, gradient,
         gradient == 0.0f ? 0.0f : -gradient * y * y)
GRADIENT("selu_grad", SeluGrad, gradient, y,
         y < 0.0f ? gradient * (y + 1.05070098f * 1.67326324f) : gradient * 1.05070098f)
GRADIENT("softplus_grad", SoftplusGrad, gradient, x, gradient* epilogue_sigmoid(x))
GRADIENT("softsign_grad", SoftsignGrad, gradient, x, gradient / (1.0f + abs(x)) / (1.0f + abs(x)))

struct LeakyReluGrad {
  float alpha;
  float operator()(float gradient, float x) const { return x > 0.0f ? gradient : gradient * alpha; }
};
SLOPE("leaky_relu_grad", LeakyReluGrad)
