// Batch norm: mean and variance of each channel, what they make of x, and the gradients.

#include "device/kernels/nn/spatial_params.h"
#include "device/kernels/strided.metal.h"

using namespace metal;

// Sum over one chunk of points of x - centre, or of its square: position (channel, chunk, image).
template <typename T, bool kSquares>
kernel void batch_norm_sum(device const T* x [[buffer(0)]], device float* sums [[buffer(1)]],
                           constant BatchNormParams& p [[buffer(2)]],
                           device const float* centre [[buffer(3)]],
                           uint3 position [[thread_position_in_grid]]) {
  const uint c = position.x;
  const uint begin = position.y * p.chunk, end = begin + min(p.chunk, p.inner - begin);
  device const T* from = x + long(position.z) * p.image + long(c) * p.channel;
  const float mean = kSquares ? centre[c] : 0.0f;
  float sum = 0.0f;
  for (uint i = begin; i < end; ++i) {
    const float value = float(from[long(i) * p.point]) - mean;
    sum += kSquares ? value * value : value;
  }
  sums[(ulong(position.z) * p.chunks + position.y) * p.channels + c] = sum;
}

inline float batch_norm_total(device const float* sums, constant BatchNormParams& p, uint c) {
  float sum = 0.0f;
  const ulong parts = ulong(p.images) * p.chunks;
  for (ulong i = 0; i < parts; ++i) sum += sums[i * p.channels + c];
  return sum / (float(p.images) * float(p.inner));
}

// One thread a channel. `running` is the average so far; `batch` the saved value.
kernel void batch_norm_mean(device const float* sums [[buffer(0)]],
                            device float* batch [[buffer(1)]],
                            constant BatchNormParams& p [[buffer(2)]],
                            device const float* running [[buffer(3)]],
                            device float* average [[buffer(4)]],
                            uint c [[thread_position_in_grid]]) {
  const float mean = batch_norm_total(sums, p, c);
  batch[c] = mean;
  average[c] = p.momentum == 1.0f ? mean : fma(p.momentum, mean - running[c], running[c]);
}

kernel void batch_norm_variance(device const float* sums [[buffer(0)]],
                                device float* batch [[buffer(1)]],
                                constant BatchNormParams& p [[buffer(2)]],
                                device const float* running [[buffer(3)]],
                                device float* average [[buffer(4)]],
                                uint c [[thread_position_in_grid]]) {
  const float variance = batch_norm_total(sums, p, c);
  batch[c] = variance;
  // The running average is of the unbiased estimate.
  const float points = float(p.images) * float(p.inner);
  const float unbiased = variance * (points / max(points - 1.0f, 1.0f));
  average[c] = p.momentum == 1.0f ? unbiased : fma(p.momentum, unbiased - running[c], running[c]);
}

// One thread per element: (channel, point) with NHWC, (point, channel, image) with NCHW.
template <typename T, bool kNchw>
kernel void batch_norm(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                       constant BatchNormParams& p [[buffer(2)]],
                       device const float* gamma [[buffer(3)]],
                       device const float* beta [[buffer(4)]],
                       device const float* mean [[buffer(5)]],
                       device const float* variance [[buffer(6)]],
                       uint3 position [[thread_position_in_grid]]) {
  const uint c = kNchw ? position.y : position.x;
  const long i = kNchw ? long(position.z) * p.image + long(c) * p.channel + position.x
                       : long(position.y) * p.point + c;
  const float scale = gamma[c] / sqrt(variance[c] + p.epsilon);
  out[i] = T(fma(float(x[i]) - mean[c], scale, beta[c]));
}

// ---- gradients ----------------------------------------------------------------------------------

// Over one chunk of points: the sums of d_y and of d_y (x - mean), position (channel, chunk, image).
template <typename T>
kernel void batch_norm_grad_sums(device const T* d_y [[buffer(0)]], device const T* x [[buffer(1)]],
                                 device const float* mean [[buffer(2)]],
                                 device float2* sums [[buffer(3)]],
                                 constant BatchNormParams& p [[buffer(4)]],
                                 uint3 position [[thread_position_in_grid]]) {
  const uint c = position.x;
  const uint begin = position.y * p.chunk, end = begin + min(p.chunk, p.inner - begin);
  const long from = long(position.z) * p.image + long(c) * p.channel;
  const float centre = mean[c];
  float sum = 0.0f, product = 0.0f;
  for (uint i = begin; i < end; ++i) {
    const long at = from + long(i) * p.point;
    const float slope = float(d_y[at]);
    sum += slope;
    product = fma(slope, float(x[at]) - centre, product);
  }
  sums[(ulong(position.z) * p.chunks + position.y) * p.channels + c] = float2(sum, product);
}

// One thread a channel. `factors` are what batch_norm_grad takes; without training the statistics are
// constants.
kernel void batch_norm_grad_totals(
    device const float2* sums [[buffer(0)]], device const float* gamma [[buffer(1)]],
    device const float* variance [[buffer(2)]], device float* d_gamma [[buffer(3)]],
    device float* d_beta [[buffer(4)]], device float* factors [[buffer(5)]],
    constant BatchNormParams& p [[buffer(6)]], constant uint& training [[buffer(7)]],
    uint c [[thread_position_in_grid]]) {
  float2 total = float2(0.0f);
  const ulong parts = ulong(p.images) * p.chunks;
  for (ulong i = 0; i < parts; ++i) total += sums[i * p.channels + c];
  const float scale = 1.0f / sqrt(variance[c] + p.epsilon);
  const float points = training != 0 ? float(p.images) * float(p.inner) : INFINITY;
  d_beta[c] = total.x;
  d_gamma[c] = total.y * scale;
  factors[3 * c] = gamma[c] * scale;
  factors[3 * c + 1] = total.x / points;
  factors[3 * c + 2] = scale * scale * total.y / points;
}

template <typename T, bool kNchw>
kernel void batch_norm_grad(device const T* d_y [[buffer(0)]], device const T* x [[buffer(1)]],
                            device const float* mean [[buffer(2)]],
                            device const float* factors [[buffer(3)]], device T* d_x [[buffer(4)]],
                            constant BatchNormParams& p [[buffer(5)]],
                            uint3 position [[thread_position_in_grid]]) {
  const uint c = kNchw ? position.y : position.x;
  const long i = kNchw ? long(position.z) * p.image + long(c) * p.channel + position.x
                       : long(position.y) * p.point + c;
  const float centred = float(d_y[i]) - factors[3 * c + 1];
  d_x[i] = T(factors[3 * c] * (centred - (float(x[i]) - mean[c]) * factors[3 * c + 2]));
}

#define BATCH_NORM(type)                                                          \
  INSTANTIATE_KERNEL("batch_norm_sum_" #type, batch_norm_sum, type, false)        \
  INSTANTIATE_KERNEL("batch_norm_squares_" #type, batch_norm_sum, type, true)     \
  INSTANTIATE_KERNEL("batch_norm_nhwc_" #type, batch_norm, type, false)           \
  INSTANTIATE_KERNEL("batch_norm_nchw_" #type, batch_norm, type, true)            \
  INSTANTIATE_KERNEL("batch_norm_grad_sums_" #type, batch_norm_grad_sums, type)   \
  INSTANTIATE_KERNEL("batch_norm_grad_nhwc_" #type, batch_norm_grad, type, false) \
  INSTANTIATE_KERNEL("batch_norm_grad_nchw_" #type, batch_norm_grad, type, true)
BATCH_NORM(float)
BATCH_NORM(half)
BATCH_NORM(bfloat)
