// FrequencyEncode and FrequencyEncodeGrad. One thread a point and dimension; the octaves follow by
// doubling, which is exact. frequency_encode_params.h has the formulas.

#include <metal_stdlib>

#include "kernels/frequency_encode/frequency_encode_params.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// A phase in turns, as a sum.
struct Turns {
  float high, low;
};

inline Turns first_turns(constant FrequencyEncodeParams& p, float x) {
  Turns u;
  u.high = x * p.turns_high;
  u.low = fma(x, p.turns_low, fma(x, p.turns_high, -u.high));
  return u;
}

inline Turns twice(Turns u) {
  u.high += u.high;
  u.low += u.low;
  return u;
}

// (sin, cos) of 2 pi u: whole turns dropped, then quarters, then Taylor's series up to pi / 4,
// where the first term left out is below 2^-28.
inline float2 sin_cos(Turns u) {
  float r = (u.high - rint(u.high)) + u.low;
  r = r - rint(r);
  const float quarters = rint(4.0f * r);  // -2 .. 2
  const float t = fma(-quarters, 0.25f, r) * 6.283185307179586f;
  const float t2 = t * t;
  float s = 1.0f / 362880.0f;
  s = fma(s, t2, -1.0f / 5040.0f);
  s = fma(s, t2, 1.0f / 120.0f);
  s = fma(s, t2, -1.0f / 6.0f);
  s = fma(s * t2, t, t);
  float c = -1.0f / 3628800.0f;
  c = fma(c, t2, 1.0f / 40320.0f);
  c = fma(c, t2, -1.0f / 720.0f);
  c = fma(c, t2, 1.0f / 24.0f);
  c = fma(c, t2, -0.5f);
  c = fma(c, t2, 1.0f);
  // An odd number of quarters swaps them; two or more change the sign.
  const bool odd = fabs(quarters) == 1.0f, half_turn = fabs(quarters) == 2.0f;
  const float sine = odd ? c : s, cosine = odd ? s : c;
  return float2(half_turn || quarters == -1.0f ? -sine : sine,
                half_turn || quarters == 1.0f ? -cosine : cosine);
}

// Where a thread's value is, and where its column begins in the encoding.
struct FrequencyColumn {
  ulong input;
  ulong output;
};

inline FrequencyColumn frequency_column(constant FrequencyEncodeParams& p, ulong i) {
  FrequencyColumn at;
  const ulong point = i / p.n_dims;
  at.input = i;
  at.output = point * p.n_dims * (2 * p.n_frequencies + p.include_input) + (i - point * p.n_dims);
  return at;
}

template <typename T>
kernel void frequency_encode(device const float* inputs [[buffer(0)]],
                             device T* outputs [[buffer(1)]],
                             constant FrequencyEncodeParams& params [[buffer(2)]],
                             uint2 position [[thread_position_in_grid]],
                             uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_points * params.n_dims) return;
  const FrequencyColumn at = frequency_column(params, i);
  const float x = inputs[at.input];
  device T* to = outputs + at.output;
  if (params.include_input != 0) {
    *to = T(x);
    to += params.n_dims;
  }
  Turns u = first_turns(params, x);
  for (uint k = 0; k < params.n_frequencies; ++k) {
    const float2 wave = sin_cos(u);
    to[0] = T(wave.x);
    to[params.n_dims] = T(wave.y);
    to += 2 * params.n_dims;
    u = twice(u);
  }
}

template <typename T>
kernel void frequency_encode_grad(device const T* d_outputs [[buffer(0)]],
                                  device const float* inputs [[buffer(1)]],
                                  device float* inputs_gradient [[buffer(2)]],
                                  constant FrequencyEncodeParams& params [[buffer(3)]],
                                  uint2 position [[thread_position_in_grid]],
                                  uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_points * params.n_dims) return;
  const FrequencyColumn at = frequency_column(params, i);
  device const T* from = d_outputs + at.output;
  float sum = 0.0f;
  if (params.include_input != 0) {
    sum = float(*from);
    from += params.n_dims;
  }
  Turns u = first_turns(params, inputs[at.input]);
  float slope = params.slope;
  for (uint k = 0; k < params.n_frequencies; ++k) {
    const float2 wave = sin_cos(u);
    const float along = fma(float(from[0]), wave.y, -(float(from[params.n_dims]) * wave.x));
    sum = fma(slope, along, sum);
    slope += slope;
    from += 2 * params.n_dims;
    u = twice(u);
  }
  inputs_gradient[i] = sum;
}

#define INSTANTIATE_TYPE(T)                                       \
  INSTANTIATE_KERNEL("frequency_encode_" #T, frequency_encode, T) \
  INSTANTIATE_KERNEL("frequency_encode_grad_" #T, frequency_encode_grad, T)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
INSTANTIATE_TYPE(bfloat)
