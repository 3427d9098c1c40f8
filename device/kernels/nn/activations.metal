// Activations, their slopes, and other elementwise functions of neural networks. The formulas are
// those of the fused ops' epilogue, so that fusing changes no result by more than rounding.

#include "device/kernels/elementwise.metal.h"
#include "device/kernels/erf.metal.h"
#include "kernels/gemm/epilogue.metal.h"
#include "kernels/msl/exp_log.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// Comparisons are the way round that lets NaN through.
struct Relu {
  float operator()(float x) const { return x < 0.0f ? 0.0f : x; }
};
struct Relu6 {
  float operator()(float x) const { return x < 0.0f ? 0.0f : (x > 6.0f ? 6.0f : x); }
};
struct Elu {
  float operator()(float x) const { return x < 0.0f ? epilogue_expm1(x) : x; }
};
struct Selu {
  float operator()(float x) const {
    return 1.05070098f * (x < 0.0f ? 1.67326324f * epilogue_expm1(x) : x);
  }
};
struct Sigmoid {
  float operator()(float x) const { return epilogue_sigmoid(x); }
};
struct Tanh {
  float operator()(float x) const { return epilogue_tanh(x); }
};
struct Erf {
  float operator()(float x) const { return error_function(x); }
};
struct Exp {
  float operator()(float x) const { return exp(x); }
};
struct Log {
  float operator()(float x) const { return log(x); }
};
struct Softplus {
  // log(1 + exp(x)) without overflow.
  float operator()(float x) const { return (x < 0.0f ? 0.0f : x) + precise_log1p(exp(-abs(x))); }
};
ELEMENTWISE_1("relu", Relu)
ELEMENTWISE_1("relu6", Relu6)
ELEMENTWISE_1("elu", Elu)
ELEMENTWISE_1("selu", Selu)
ELEMENTWISE_1("sigmoid", Sigmoid)
ELEMENTWISE_1("tanh", Tanh)
ELEMENTWISE_1("erf", Erf)
ELEMENTWISE_1("exp", Exp)
ELEMENTWISE_1("log", Log)
ELEMENTWISE_1("softplus", Softplus)

struct LeakyRelu {
  float alpha;
  float operator()(float x) const { return x < 0.0f ? x * alpha : x; }
};
ELEMENTWISE_1("leaky_relu", LeakyRelu)

// ---- two operands -------------------------------------------------------------------------------

struct Maximum {
  float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
struct Minimum {
  float operator()(float a, float b) const { return a < b || a != a ? a : b; }
};
struct SquaredDifference {
  float operator()(float a, float b) const { return (a - b) * (a - b); }
};
struct DivNoNan {
  float operator()(float a, float b) const { return b == 0.0f ? 0.0f : a / b; }
};
// For negative numbers too, to whole powers: GELU's cube.
struct Pow {
  float operator()(float a, float b) const { return pow(a, b); }
};
BINARY_FLOATS("maximum", Maximum)
BINARY_FLOATS("minimum", Minimum)
BINARY_FLOATS("squared_difference", SquaredDifference)
BINARY_FLOATS("div_no_nan", DivNoNan)
BINARY_FLOATS("pow", Pow)

// Gradients: the operands in the op's order, one element per thread.
struct ReluGrad {
  float operator()(float gradient, float feature) const { return feature > 0.0f ? gradient : 0.0f; }
};
struct Relu6Grad {
  float operator()(float gradient, float feature) const {
    return feature > 0.0f && feature < 6.0f ? gradient : 0.0f;
  }
};
struct EluGrad {
  float operator()(float gradient, float output) const {
    return output < 0.0f ? gradient * (output + 1.0f) : gradient;
  }
};
struct SigmoidGrad {
  float operator()(float y, float gradient) const { return gradient * y * (1.0f - y); }
};
struct TanhGrad {
  float operator()(float y, float gradient) const { return gradient * (1.0f - y * y); }
};
struct RsqrtGrad {
  // A zero gradient stays zero, as on TensorFlow's CPU, where y is infinite.
  float operator()(float y, float gradient) const {
    return gradient == 0.0f ? 0.0f : -0.5f * (gradient * y * y * y);
  }
};
SLOPE("relu_grad", ReluGrad)
SLOPE("relu6_grad", Relu6Grad)
SLOPE("elu_grad", EluGrad)
SLOPE("sigmoid_grad", SigmoidGrad)
SLOPE("tanh_grad", TanhGrad)
SLOPE("rsqrt_grad", RsqrtGrad)
