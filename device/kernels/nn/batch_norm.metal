// Batch norm: mean and variance of each channel, the normalized x, and the gradients.

#include "device/kernels/nn/rows.metal.h"
#include "device/kernels/nn/spatial_params.h"
#include "device/kernels/strided.metal.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// Sums over the points of a chunk. Channels that are neighbours are added side by side, BATCH_NORM_LANES a
// thread, which a CPU's vectors and a GPU's loads want. In a block that is not whole (kWhole) the last one is
// added in place of the missing ones: arrays whose indices are known live in registers.
template <bool kWhole>
inline uint column_of(uint k, uint width) {
  return kWhole ? k : min(k, width - 1);
}

// sum of x - centre, or of its square, added to `sums`.
template <typename T, bool kWhole, bool kSquares>
inline void add_columns(device const T* x, long step, uint points, uint width,
                        thread const float* centre, thread float* sums) {
  for (uint i = 0; i < points; ++i) {
    device const T* const from = x + long(i) * step;
    for (uint k = 0; k < BATCH_NORM_LANES; ++k) {
      const float value = float(from[column_of<kWhole>(k, width)]) - centre[k];
      sums[k] += kSquares ? value * value : value;
    }
  }
}

// x[i] - centre, or its square.
template <typename T, bool kSquares>
struct Distance {
  device const T* x;
  float centre;
  float operator()(uint i) const {
    const float value = float(x[i]) - centre;
    return kSquares ? value * value : value;
  }
};

// Where a thread of (block of channels or channel, chunk, image) begins.
template <bool kNchw>
struct Part {
  uint first, width, points;
  long from;
  ulong to;
  Part(constant BatchNormParams& p, uint3 position) {
    const uint begin = position.y * p.chunk;
    first = kNchw ? position.x : position.x * BATCH_NORM_LANES;
    width = kNchw ? 1 : min(uint(BATCH_NORM_LANES), p.channels - first);
    points = min(p.chunk, p.inner - begin);
    from = long(position.z) * p.image + long(first) * p.channel + long(begin) * p.point;
    to = (ulong(position.z) * p.chunks + position.y) * p.channels + first;
  }
};

// A chunk's sum, and its squares' about its own mean: x is read from memory once.
template <typename T, bool kNchw>
kernel void batch_norm_parts(device const T* x [[buffer(0)]], device float2* parts [[buffer(1)]],
                             constant BatchNormParams& p [[buffer(2)]],
                             uint3 position [[thread_position_in_grid]]) {
  const Part<kNchw> part(p, position);
  if (kNchw) {
    const Distance<T, false> value = {x + part.from, 0.0f};
    const float sum = row_sum(part.points, value);
    const Distance<T, true> square = {x + part.from, sum / float(part.points)};
    parts[part.to] = float2(sum, row_sum(part.points, square));
    return;
  }
  float none[BATCH_NORM_LANES], sums[BATCH_NORM_LANES], means[BATCH_NORM_LANES],
      squares[BATCH_NORM_LANES];
  for (uint k = 0; k < BATCH_NORM_LANES; ++k) none[k] = sums[k] = squares[k] = 0.0f;
  const bool whole = part.width == BATCH_NORM_LANES;
  if (whole) {
    add_columns<T, true, false>(x + part.from, p.point, part.points, part.width, none, sums);
  } else {
    add_columns<T, false, false>(x + part.from, p.point, part.points, part.width, none, sums);
  }
  for (uint k = 0; k < BATCH_NORM_LANES; ++k) means[k] = sums[k] / float(part.points);
  if (whole) {
    add_columns<T, true, true>(x + part.from, p.point, part.points, part.width, means, squares);
  } else {
    add_columns<T, false, true>(x + part.from, p.point, part.points, part.width, means, squares);
  }
  for (uint k = 0; k < BATCH_NORM_LANES; ++k) {
    if (k < part.width) parts[part.to + k] = float2(sums[k], squares[k]);
  }
}

// One thread per channel. `batch_` are the saved values, `running_` the averages so far; `scale` is the
// factor of the elements' distance from the mean.
kernel void batch_norm_moments(
    device const float2* parts [[buffer(0)]], device const float* gamma [[buffer(1)]],
    device const float* running_mean [[buffer(2)]],
    device const float* running_variance [[buffer(3)]], device float* average_mean [[buffer(4)]],
    device float* average_variance [[buffer(5)]], device float* batch_mean [[buffer(6)]],
    device float* batch_variance [[buffer(7)]], device float* scale [[buffer(8)]],
    constant BatchNormParams& p [[buffer(9)]], uint c [[thread_position_in_grid]]) {
  const float points = float(p.images) * float(p.inner);
  const ulong count = ulong(p.images) * p.chunks;
  float sum = 0.0f;
  for (ulong i = 0; i < count; ++i) sum += parts[i * p.channels + c].x;
  const float mean = sum / points;
  // A chunk's squares about its own mean, and its mean's distance from that of all.
  const uint last = p.inner - (p.chunks - 1) * p.chunk;
  float squares = 0.0f;
  for (ulong i = 0; i < count; ++i) {
    const float2 part = parts[i * p.channels + c];
    const float of_part = float((i + 1) % p.chunks == 0 ? last : p.chunk);
    const float distance = part.x / of_part - mean;
    squares += part.y + of_part * distance * distance;
  }
  const float variance = squares / points;
  batch_mean[c] = mean;
  batch_variance[c] = variance;
  scale[c] = gamma[c] / sqrt(variance + p.epsilon);
  // The running average is of the unbiased estimate.
  const float unbiased = variance * (points / max(points - 1.0f, 1.0f));
  const bool first = p.momentum == 1.0f;
  average_mean[c] = first ? mean : fma(p.momentum, mean - running_mean[c], running_mean[c]);
  average_variance[c] =
      first ? unbiased : fma(p.momentum, unbiased - running_variance[c], running_variance[c]);
}

kernel void batch_norm_scale(device const float* gamma [[buffer(0)]],
                             device const float* variance [[buffer(1)]],
                             device float* scale [[buffer(2)]],
                             constant BatchNormParams& p [[buffer(3)]],
                             uint c [[thread_position_in_grid]]) {
  scale[c] = gamma[c] / sqrt(variance[c] + p.epsilon);
}

// One thread per element: (channel, point) with NHWC, (point, channel, image) with NCHW.
template <typename T, bool kNchw>
kernel void batch_norm(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                       constant BatchNormParams& p [[buffer(2)]],
                       device const float* scale [[buffer(3)]],
                       device const float* beta [[buffer(4)]],
                       device const float* mean [[buffer(5)]],
                       uint3 position [[thread_position_in_grid]]) {
  const uint c = kNchw ? position.y : position.x;
  const long i = kNchw ? long(position.z) * p.image + long(c) * p.channel + position.x
                       : long(position.y) * p.point + c;
  out[i] = T(fma(float(x[i]) - mean[c], scale[c], beta[c]));
}

// With moments of the input's type, in the channels last: (channel, point).
template <typename T>
kernel void batch_norm_global(device const T* x [[buffer(0)]], device const T* mean [[buffer(1)]],
                              device const T* variance [[buffer(2)]],
                              device const T* beta [[buffer(3)]],
                              device const T* gamma [[buffer(4)]], device T* out [[buffer(5)]],
                              constant float& epsilon [[buffer(6)]],
                              constant uint& scaled [[buffer(7)]],
                              uint2 position [[thread_position_in_grid]],
                              uint2 grid [[threads_per_grid]]) {
  const uint c = position.x;
  const long i = long(position.y) * grid.x + c;
  const float scale = (scaled != 0 ? float(gamma[c]) : 1.0f) / sqrt(float(variance[c]) + epsilon);
  out[i] = T(fma(float(x[i]) - float(mean[c]), scale, float(beta[c])));
}
INSTANTIATE_KERNEL("batch_norm_global_float", batch_norm_global, float)
INSTANTIATE_KERNEL("batch_norm_global_half", batch_norm_global, half)

// ---- gradients ----------------------------------------------------------------------------------

// Added to `sums` and `products`: d_y, and d_y (x - mean).
template <typename T, bool kWhole>
inline void add_slopes(device const T* d_y, device const T* x, long step, uint points, uint width,
                       thread const float* mean, thread float* sums, thread float* products) {
  for (uint i = 0; i < points; ++i) {
    for (uint k = 0; k < BATCH_NORM_LANES; ++k) {
      const long at = long(i) * step + long(column_of<kWhole>(k, width));
      const float slope = float(d_y[at]);
      sums[k] += slope;
      products[k] = fma(slope, float(x[at]) - mean[k], products[k]);
    }
  }
}
template <typename T>
struct SlopeProduct {
  device const T* d_y;
  device const T* x;
  float mean;
  float operator()(uint i) const { return float(d_y[i]) * (float(x[i]) - mean); }
};

// A chunk's sums of d_y and of d_y (x - mean).
template <typename T, bool kNchw>
kernel void batch_norm_grad_parts(device const T* d_y [[buffer(0)]],
                                  device const T* x [[buffer(1)]],
                                  device const float* mean [[buffer(2)]],
                                  device float2* parts [[buffer(3)]],
                                  constant BatchNormParams& p [[buffer(4)]],
                                  uint3 position [[thread_position_in_grid]]) {
  const Part<kNchw> part(p, position);
  device const T* const from_d_y = d_y + part.from;
  device const T* const from_x = x + part.from;
  if (kNchw) {
    const Distance<T, false> slope = {from_d_y, 0.0f};
    const SlopeProduct<T> product = {from_d_y, from_x, mean[part.first]};
    parts[part.to] = float2(row_sum(part.points, slope), row_sum(part.points, product));
    return;
  }
  float means[BATCH_NORM_LANES], sums[BATCH_NORM_LANES], products[BATCH_NORM_LANES];
  for (uint k = 0; k < BATCH_NORM_LANES; ++k) {
    means[k] = mean[part.first + min(k, part.width - 1)];
    sums[k] = products[k] = 0.0f;
  }
  if (part.width == BATCH_NORM_LANES) {
    add_slopes<T, true>(from_d_y, from_x, p.point, part.points, part.width, means, sums, products);
  } else {
    add_slopes<T, false>(from_d_y, from_x, p.point, part.points, part.width, means, sums, products);
  }
  for (uint k = 0; k < BATCH_NORM_LANES; ++k) {
    if (k < part.width) parts[part.to + k] = float2(sums[k], products[k]);
  }
}

// One thread per channel. `factors` are batch_norm_grad's, three rows of channels; without training
// the statistics are constants.
kernel void batch_norm_grad_totals(
    device const float2* parts [[buffer(0)]], device const float* gamma [[buffer(1)]],
    device const float* variance [[buffer(2)]], device float* d_gamma [[buffer(3)]],
    device float* d_beta [[buffer(4)]], device float* factors [[buffer(5)]],
    constant BatchNormParams& p [[buffer(6)]], constant uint& training [[buffer(7)]],
    uint c [[thread_position_in_grid]]) {
  float2 total = float2(0.0f);
  const ulong count = ulong(p.images) * p.chunks;
  for (ulong i = 0; i < count; ++i) total += parts[i * p.channels + c];
  const float scale = 1.0f / sqrt(variance[c] + p.epsilon);
  const float points = training != 0 ? float(p.images) * float(p.inner) : INFINITY;
  d_beta[c] = total.x;
  d_gamma[c] = total.y * scale;
  factors[c] = gamma[c] * scale;
  factors[p.channels + c] = total.x / points;
  factors[2 * p.channels + c] = scale * scale * total.y / points;
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
  device const float* const means = factors + p.channels;
  device const float* const slopes = means + p.channels;
  const float centred = float(d_y[i]) - means[c];
  d_x[i] = T(factors[c] * (centred - (float(x[i]) - mean[c]) * slopes[c]));
}

#define BATCH_NORM_LAYOUT(suffix, type, nchw)                                                 \
  INSTANTIATE_KERNEL("batch_norm_parts" suffix #type, batch_norm_parts, type, nchw)           \
  INSTANTIATE_KERNEL("batch_norm" suffix #type, batch_norm, type, nchw)                       \
  INSTANTIATE_KERNEL("batch_norm_grad_parts" suffix #type, batch_norm_grad_parts, type, nchw) \
  INSTANTIATE_KERNEL("batch_norm_grad" suffix #type, batch_norm_grad, type, nchw)
#define BATCH_NORM(type)                   \
  BATCH_NORM_LAYOUT("_nhwc_", type, false) \
  BATCH_NORM_LAYOUT("_nchw_", type, true)
BATCH_NORM(float)
BATCH_NORM(half)
IF_BFLOAT(BATCH_NORM(bfloat))
