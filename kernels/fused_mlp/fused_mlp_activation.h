// Activations of small networks in shaders. The host chooses by function constants.

#ifndef METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_ACTIVATION_H_
#define METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_ACTIVATION_H_

#include <metal_stdlib>

#include "kernels/fused_mlp/fused_mlp_params.h"

// A struct in constant memory is copied by its members: not every dialect constructs it from there.
inline MlpSizes mlp_sizes(constant MlpParams& params) {
  return {params.sizes.inputs, params.sizes.width, params.sizes.outputs, params.sizes.n_layers,
          params.sizes.use_bias};
}

constant uint mlp_activation [[function_constant(0)]];
constant uint mlp_output_activation [[function_constant(1)]];

// Comparisons are the way round that lets NaN through.
inline float mlp_activated(uint activation, float squareplus_b, float x) {
  switch (activation) {
    case MLP_RELU:
      return x < 0.0f ? 0.0f : x;
    case MLP_EXPONENTIAL:
      return metal::exp(x);
    case MLP_SIGMOID:
      return 1.0f / (1.0f + metal::exp(-x));
    case MLP_SQUAREPLUS: {
      // Below 0 the sum cancels: (x + s) / 2 is b / (2 (s - x)).
      const float sum = metal::sqrt(metal::fma(x, x, squareplus_b)) + metal::abs(x);
      return 0.5f * (x < 0.0f ? squareplus_b / sum : sum);
    }
    default:
      return x;
  }
}

// d activation'(.), where y is the activation's value.
inline float mlp_times_slope(uint activation, float squareplus_b, float d, float y) {
  switch (activation) {
    case MLP_RELU:
      return y > 0.0f ? d : 0.0f;
    case MLP_EXPONENTIAL:
      return d * y;
    case MLP_SIGMOID:
      return d * (y * (1.0f - y));
    case MLP_SQUAREPLUS:
      return d / (1.0f + 0.25f * squareplus_b / (y * y));
    default:
      return d;
  }
}

// Four values, in a function of their own: code that kernels unroll many times takes long to compile
// for each new network.
__attribute__((noinline)) inline float4 mlp_activated_4(uint activation, float squareplus_b,
                                                        float4 x) {
  return float4(
      mlp_activated(activation, squareplus_b, x.x), mlp_activated(activation, squareplus_b, x.y),
      mlp_activated(activation, squareplus_b, x.z), mlp_activated(activation, squareplus_b, x.w));
}
__attribute__((noinline)) inline float4 mlp_times_slope_4(uint activation, float squareplus_b,
                                                          float4 d, float4 y) {
  return float4(mlp_times_slope(activation, squareplus_b, d.x, y.x),
                mlp_times_slope(activation, squareplus_b, d.y, y.y),
                mlp_times_slope(activation, squareplus_b, d.z, y.z),
                mlp_times_slope(activation, squareplus_b, d.w, y.w));
}

#endif  // METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_ACTIVATION_H_
