// Activations of small networks in shaders. The host chooses by function constants.

#ifndef METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_ACTIVATION_H_
#define METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_ACTIVATION_H_

#include <metal_stdlib>

#include "kernels/fused_mlp/fused_mlp_params.h"
#include "kernels/msl/exp_log.h"

// A struct in constant memory is copied by its members: not every dialect constructs it from there.
inline MlpSizes mlp_sizes(constant MlpParams& params) {
  return {params.sizes.inputs, params.sizes.width, params.sizes.outputs, params.sizes.n_layers,
          params.sizes.use_bias};
}

inline MlpShape mlp_shape(constant MlpParams& params) {
  return {params.shape.squareplus_b, params.shape.softplus_beta, params.shape.negative_slope};
}

constant uint mlp_activation [[function_constant(0)]];
constant uint mlp_output_activation [[function_constant(1)]];

// Comparisons are the way round that lets NaN through.
inline float mlp_activated(uint activation, MlpShape shape, float x) {
  switch (activation) {
    case MLP_RELU:
      return x < 0.0f ? 0.0f : x;
    case MLP_EXPONENTIAL:
      return metal::exp(x);
    case MLP_SIGMOID:
      return 1.0f / (1.0f + metal::exp(-x));
    case MLP_SQUAREPLUS: {
      // Below 0 the sum cancels: (x + s) / 2 is b / (2 (s - x)).
      const float sum = metal::sqrt(metal::fma(x, x, shape.squareplus_b)) + metal::abs(x);
      return 0.5f * (x < 0.0f ? shape.squareplus_b / sum : sum);
    }
    case MLP_LEAKY_RELU:
      return x < 0.0f ? shape.negative_slope * x : x;
    case MLP_SOFTPLUS: {
      // No exponential of a number above 0, which may overflow.
      const float e = metal::exp(-shape.softplus_beta * metal::abs(x));
      return (x < 0.0f ? 0.0f : x) + precise_log1p(e) / shape.softplus_beta;
    }
    case MLP_TANH: {
      const float e = precise_expm1(-2.0f * metal::abs(x));
      return metal::copysign(-e / (2.0f + e), x);
    }
    default:
      return x;
  }
}

// d activation'(.), where y is the activation's value.
inline float mlp_times_slope(uint activation, MlpShape shape, float d, float y) {
  switch (activation) {
    case MLP_RELU:
      return y > 0.0f ? d : 0.0f;
    case MLP_EXPONENTIAL:
      return d * y;
    case MLP_SIGMOID:
      return d * (y * (1.0f - y));
    case MLP_SQUAREPLUS:
      return d / (1.0f + 0.25f * shape.squareplus_b / (y * y));
    case MLP_LEAKY_RELU:
      return y > 0.0f ? d : shape.negative_slope * d;
    case MLP_SOFTPLUS:
      return -d * precise_expm1(-shape.softplus_beta * y);
    case MLP_TANH:
      return d * metal::fma(-y, y, 1.0f);
    default:
      return d;
  }
}

// Four values, in a function of their own: code that kernels unroll many times takes long to compile
// for each new network.
__attribute__((noinline)) inline float4 mlp_activated_4(uint activation, MlpShape shape, float4 x) {
  return float4(mlp_activated(activation, shape, x.x), mlp_activated(activation, shape, x.y),
                mlp_activated(activation, shape, x.z), mlp_activated(activation, shape, x.w));
}
__attribute__((noinline)) inline float4 mlp_times_slope_4(uint activation, MlpShape shape, float4 d,
                                                          float4 y) {
  return float4(
      mlp_times_slope(activation, shape, d.x, y.x), mlp_times_slope(activation, shape, d.y, y.y),
      mlp_times_slope(activation, shape, d.z, y.z), mlp_times_slope(activation, shape, d.w, y.w));
}

#endif  // METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_ACTIVATION_H_
