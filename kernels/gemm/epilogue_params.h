// The ops that a fused op applies to a convolution's or product's result before storing it: names
// read by host code and shaders alike. The formulas are in epilogue.metal.h.

#ifndef METAL_OPS_KERNELS_GEMM_EPILOGUE_PARAMS_H_
#define METAL_OPS_KERNELS_GEMM_EPILOGUE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// The first step, per channel.
#define EPILOGUE_NO_CHANNELS 0
#define EPILOGUE_BIAS 1         // y + bias
#define EPILOGUE_SCALE_SHIFT 2  // y scale + shift
#define EPILOGUE_BATCH_NORM 3   // (y - mean) / sqrt(variance + epsilon) gamma + beta

// The last step. Between the two a residual may be added.
#define EPILOGUE_NO_ACTIVATION 0
#define EPILOGUE_RELU 1
#define EPILOGUE_RELU6 2
#define EPILOGUE_ELU 3
#define EPILOGUE_LEAKY_RELU 4
#define EPILOGUE_SIGMOID 5
#define EPILOGUE_TANH 6
#define EPILOGUE_SWISH 7
#define EPILOGUE_GELU_EXACT 8
#define EPILOGUE_GELU_APPROXIMATE 9
#define EPILOGUE_MISH 10

// The normal distribution's tail, for x >= 0: 1 - Phi(x) = exp(-x^2 / 2) t (c0 + c1 t + ... + c8
// t^8) with t = 1 / (1 + 0.35 x). Fitted to a relative error of 3.2e-8 for 0 <= x <= 14.5, beyond
// which float32 has nothing left; unlike 1 - erf, it keeps its digits where it is small.
#define EPILOGUE_TAIL_SCALE 0.35f
#define EPILOGUE_TAIL_TERMS 9
#define EPILOGUE_TAIL_COEFFICIENTS                                           \
  {0.139621302f, 0.139863536f,  0.119821183f, 0.105552927f,  -0.0232133921f, \
   0.159321249f, -0.255840391f, 0.144031614f, -0.0291580297f}

// x tanh(log(1 + e^x)) is x n / (n + 2), n = e^x (e^x + 2); from here on the quotient is 1, and n does
// not overflow.
#define EPILOGUE_MISH_LIMIT 20.0f

// At most four tensors of a number per channel: gamma, beta, mean, variance.
#define EPILOGUE_CHANNEL_ARGS 4

struct EpilogueParams {
  float epsilon;
  float leakyrelu_alpha;
};
static_assert(sizeof(EpilogueParams) == 8, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_GEMM_EPILOGUE_PARAMS_H_
