// FrequencyEncode and FrequencyEncodeGrad. One thread per point and dimension.

#include <metal_stdlib>

#include "kernels/frequency_encode/frequency_encode_params.h"
#include "kernels/msl/formula.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#include "kernels/frequency_encode/frequency_encode_formula.h"

// Where the column of value i begins in the encoding.
inline ulong frequency_column(constant FrequencyEncodeParams& p, ulong i) {
  const ulong point = i / p.n_dims;
  return point * p.n_dims * (2 * p.n_frequencies + p.include_input) + (i - point * p.n_dims);
}

template <typename T>
kernel void frequency_encode(device const float* inputs [[buffer(0)]],
                             device T* outputs [[buffer(1)]],
                             constant FrequencyEncodeParams& params [[buffer(2)]],
                             uint2 position [[thread_position_in_grid]],
                             uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_points * params.n_dims) return;
  const float x = inputs[i];
  device T* to = outputs + frequency_column(params, i);
  if (params.include_input != 0) {
    *to = T(x);
    to += params.n_dims;
  }
  Turns<float> u = first_turns(params, x);
  for (uint k = 0; k < params.n_frequencies; ++k) {
    const Wave<float> at = wave(u);
    to[0] = T(at.sine);
    to[params.n_dims] = T(at.cosine);
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
  device const T* from = d_outputs + frequency_column(params, i);
  float sum = 0.0f;
  if (params.include_input != 0) {
    sum = float(*from);
    from += params.n_dims;
  }
  Turns<float> u = first_turns(params, inputs[i]);
  float slope = params.slope;
  for (uint k = 0; k < params.n_frequencies; ++k) {
    const float along = along_wave(wave(u), float(from[0]), float(from[params.n_dims]));
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
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
