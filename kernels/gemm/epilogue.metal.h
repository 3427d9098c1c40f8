// The ops fused to a product, in float32 and in registers: channels, residual, activation. The host
// chooses by function constants, so that a compiled pipeline has no branches left.

#ifndef METAL_OPS_KERNELS_GEMM_EPILOGUE_METAL_H_
#define METAL_OPS_KERNELS_GEMM_EPILOGUE_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/epilogue_params.h"

constant uint epilogue_channels [[function_constant(0)]];
constant bool epilogue_add [[function_constant(1)]];
constant uint epilogue_activation [[function_constant(2)]];
// Channel arguments are float32 although the product is not.
constant bool epilogue_float_channels [[function_constant(3)]];

// Accurate to the last digits of tanh, and no overflow: exp(-2 |x|) is at most 1.
inline float epilogue_tanh(float x) {
  const float size = metal::abs(x);
  const float e = metal::exp(-2.0f * size);
  const float square = x * x;
  // Around 0 the quotient cancels; there the series does.
  const float small =
      x + x * square *
              (-0.333333333f +
               square * (0.133333333f + square * (-0.0539682540f + square * 0.0218694885f)));
  const float large = metal::copysign((1.0f - e) / (1.0f + e), x);
  return size < 0.3f ? small : large;
}

inline float epilogue_sigmoid(float x) { return 1.0f / (1.0f + metal::exp(-x)); }

// exp(x) - 1 for x <= 0.
inline float epilogue_expm1(float x) {
  const float small =
      x + x * x *
              (0.5f + x * (0.166666667f +
                           x * (0.0416666667f + x * (0.00833333333f +
                                                     x * (0.00138888889f + x * 0.000198412698f)))));
  return x > -0.4f ? small : metal::exp(x) - 1.0f;
}

// 1 - Phi(x) for x >= 0: see EPILOGUE_TAIL_COEFFICIENTS.
inline float epilogue_normal_tail(float x) {
  const float coefficients[EPILOGUE_TAIL_TERMS] = EPILOGUE_TAIL_COEFFICIENTS;
  const float t = 1.0f / metal::fma(EPILOGUE_TAIL_SCALE, x, 1.0f);
  float sum = coefficients[EPILOGUE_TAIL_TERMS - 1];
  for (int i = EPILOGUE_TAIL_TERMS - 2; i >= 0; --i) sum = metal::fma(sum, t, coefficients[i]);
  return metal::exp(-0.5f * x * x) * t * sum;
}

// x Phi(x).
inline float epilogue_gelu(float x) {
  const float tail = epilogue_normal_tail(metal::abs(x));
  return x * (x > 0.0f ? 1.0f - tail : tail);
}

// (1 + tanh(y)) / 2 is sigmoid(2 y), which does not cancel.
inline float epilogue_gelu_approximate(float x) {
  const float inner = 0.7978845608f * metal::fma(0.044715f * x * x, x, x);  // sqrt(2 / pi)
  return x * epilogue_sigmoid(2.0f * inner);
}

// See EPILOGUE_MISH_LIMIT.
inline float epilogue_mish(float x) {
  const float e = metal::exp(metal::min(x, EPILOGUE_MISH_LIMIT));
  const float n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}

// Comparisons are the way round that lets NaN through.
template <uint kActivation>
inline float epilogue_activate_by(float x, float leakyrelu_alpha) {
  switch (kActivation) {
    case EPILOGUE_RELU:
      return x < 0.0f ? 0.0f : x;
    case EPILOGUE_RELU6:
      return x < 0.0f ? 0.0f : (x > 6.0f ? 6.0f : x);
    case EPILOGUE_ELU:
      return x < 0.0f ? epilogue_expm1(x) : x;
    case EPILOGUE_LEAKY_RELU:
      return x < 0.0f ? x * leakyrelu_alpha : x;
    case EPILOGUE_SIGMOID:
      return epilogue_sigmoid(x);
    case EPILOGUE_TANH:
      return epilogue_tanh(x);
    case EPILOGUE_SWISH:
      return x * epilogue_sigmoid(x);
    case EPILOGUE_GELU_EXACT:
      return epilogue_gelu(x);
    case EPILOGUE_GELU_APPROXIMATE:
      return epilogue_gelu_approximate(x);
    case EPILOGUE_MISH:
      return epilogue_mish(x);
    default:
      return x;
  }
}

// Neighbours at once: a loop of its own for each activation, without a choice inside.
template <int N>
inline void epilogue_activate(thread float (&y)[N], float leakyrelu_alpha) {
#define EPILOGUE_CASE(activation)                                     \
  case activation:                                                    \
    for (int j = 0; j < N; ++j) {                                     \
      y[j] = epilogue_activate_by<activation>(y[j], leakyrelu_alpha); \
    }                                                                 \
    break;
  switch (epilogue_activation) {
    EPILOGUE_CASE(EPILOGUE_RELU)
    EPILOGUE_CASE(EPILOGUE_RELU6)
    EPILOGUE_CASE(EPILOGUE_ELU)
    EPILOGUE_CASE(EPILOGUE_LEAKY_RELU)
    EPILOGUE_CASE(EPILOGUE_SIGMOID)
    EPILOGUE_CASE(EPILOGUE_TANH)
    EPILOGUE_CASE(EPILOGUE_SWISH)
    EPILOGUE_CASE(EPILOGUE_GELU_EXACT)
    EPILOGUE_CASE(EPILOGUE_GELU_APPROXIMATE)
    EPILOGUE_CASE(EPILOGUE_MISH)
    default:
      break;
  }
#undef EPILOGUE_CASE
}

// Values that do not depend on the row, for neighbouring columns. Only the values that the op has
// are filled in.
template <int N>
struct EpilogueColumns {
  float mean[N], scale[N], shift[N];
};

// The arguments of one fused op. Those that it does not take are bound to anything.
template <typename T>
struct FusedEpilogue {
  device const T* gamma;  // or bias, or scale
  device const T* beta;   // or shift
  device const T* mean;
  device const T* variance;
  device const T* residual;
  EpilogueParams params;

  float channel(device const T* values, uint column) const {
    return epilogue_float_channels ? ((device const float*)values)[column] : float(values[column]);
  }

  // Values that do not depend on the row: y -> (y - mean) scale + shift.
  struct Column {
    float mean, scale, shift;
  };
  Column column(uint at) const {
    Column c = {0.0f, 1.0f, 0.0f};
    if (epilogue_channels == EPILOGUE_BIAS) c.shift = channel(gamma, at);
    if (epilogue_channels == EPILOGUE_SCALE_SHIFT || epilogue_channels == EPILOGUE_BATCH_NORM) {
      c.scale = channel(gamma, at);
      c.shift = channel(beta, at);
    }
    if (epilogue_channels == EPILOGUE_BATCH_NORM) {
      c.mean = channel(mean, at);
      c.scale /= metal::sqrt(channel(variance, at) + params.epsilon);
    }
    return c;
  }

  float channels(float y, Column c) const {
    if (epilogue_channels == EPILOGUE_BIAS) y += c.shift;
    if (epilogue_channels == EPILOGUE_SCALE_SHIFT) y = metal::fma(y, c.scale, c.shift);
    if (epilogue_channels == EPILOGUE_BATCH_NORM) y = metal::fma(y - c.mean, c.scale, c.shift);
    return y;
  }
  // `at` is where the element lies in residual and product.
  float operator()(float y, Column c, long at) const {
    y = channels(y, c);
    if (epilogue_add) y += float(residual[at]);
    float result[1] = {y};
    epilogue_activate(result, params.leakyrelu_alpha);
    return result[0];
  }

  // Neighbours in a row at once, each step a loop of its own.
  template <int N>
  void load(device const T* values, uint first, thread float (&to)[N]) const {
    if (epilogue_float_channels) {
      device const float* const from = (device const float*)values + first;
      for (int j = 0; j < N; ++j) to[j] = from[j];
    } else {
      device const T* const from = values + first;
      for (int j = 0; j < N; ++j) to[j] = float(from[j]);
    }
  }
  template <int N>
  void columns(uint first, thread EpilogueColumns<N>& c) const {
    if (epilogue_channels == EPILOGUE_BIAS) load(gamma, first, c.shift);
    if (epilogue_channels == EPILOGUE_SCALE_SHIFT || epilogue_channels == EPILOGUE_BATCH_NORM) {
      load(gamma, first, c.scale);
      load(beta, first, c.shift);
    }
    if (epilogue_channels == EPILOGUE_BATCH_NORM) {
      float spread[N];
      load(mean, first, c.mean);
      load(variance, first, spread);
      for (int j = 0; j < N; ++j) c.scale[j] /= metal::sqrt(spread[j] + params.epsilon);
    }
  }
  template <int N>
  void row(thread float (&y)[N], thread const EpilogueColumns<N>& c, long at) const {
    if (epilogue_channels == EPILOGUE_BIAS) {
      for (int j = 0; j < N; ++j) y[j] += c.shift[j];
    } else if (epilogue_channels == EPILOGUE_SCALE_SHIFT) {
      for (int j = 0; j < N; ++j) y[j] = metal::fma(y[j], c.scale[j], c.shift[j]);
    } else if (epilogue_channels == EPILOGUE_BATCH_NORM) {
      for (int j = 0; j < N; ++j) y[j] = metal::fma(y[j] - c.mean[j], c.scale[j], c.shift[j]);
    }
    if (epilogue_add) {
      device const T* const from = residual + at;
      for (int j = 0; j < N; ++j) y[j] += float(from[j]);
    }
    epilogue_activate(y, params.leakyrelu_alpha);
  }
};

// For products that nothing is fused to.
struct NoEpilogue {
  struct Column {};
  Column column(uint) const { return Column(); }
  float operator()(float y, Column, long) const { return y; }
  template <int N>
  void columns(uint, thread EpilogueColumns<N>&) const {}
  template <int N>
  void row(thread float (&)[N], thread const EpilogueColumns<N>&, long) const {}
};

#endif  // METAL_OPS_KERNELS_GEMM_EPILOGUE_METAL_H_
