// Fake quantization, and its gradients by input, least and largest.

#include <metal_stdlib>

#include "device/kernels/nn/fake_quant_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// The range moved such that 0 is one of the steps. `none`: there is no range, and everything is 0.
struct Range {
  float least, largest, scale, zero;
  bool none;
};
inline Range find_range(float least, float largest, constant FakeQuantParams& p) {
  Range range;
  range.none = least == 0.0f && largest == 0.0f;
  range.scale = (largest - least) / (p.largest - p.least);
  const float zero = p.least - least / range.scale;
  range.zero = zero < p.least ? p.least : zero > p.largest ? p.largest : round(zero);
  range.least = (p.least - range.zero) * range.scale;
  range.largest = (p.largest - range.zero) * range.scale;
  return range;
}

// Grid of these: elements, or channels and rows where each channel has a range.
template <bool kChannels>
kernel void fake_quant(device const float* in [[buffer(0)]],
                       device const float* least [[buffer(1)]],
                       device const float* largest [[buffer(2)]], device float* out [[buffer(3)]],
                       constant FakeQuantParams& p [[buffer(4)]],
                       uint2 position [[thread_position_in_grid]]) {
  const ulong i = ulong(position.y) * p.columns + position.x;
  const uint channel = kChannels ? position.x : 0;
  const Range range = find_range(least[channel], largest[channel], p);
  const float inverse = 1.0f / range.scale;
  const float zero = floor(-range.least * inverse + 0.5f);
  const float x = max(min(in[i], range.largest), range.least) - range.least;
  const float step = floor(x * inverse - zero + 0.5f) * range.scale;
  out[i] = range.none ? 0.0f : step;
}

template <bool kChannels>
kernel void fake_quant_grad(device const float* slopes [[buffer(0)]],
                            device const float* in [[buffer(1)]],
                            device const float* least [[buffer(2)]],
                            device const float* largest [[buffer(3)]],
                            device float* out [[buffer(4)]],
                            constant FakeQuantParams& p [[buffer(5)]],
                            uint2 position [[thread_position_in_grid]]) {
  const ulong i = ulong(position.y) * p.columns + position.x;
  const uint channel = kChannels ? position.x : 0;
  const Range range = find_range(least[channel], largest[channel], p);
  const float x = in[i], slope = slopes[i];
  const float above = x >= range.least ? slope : 0.0f;
  const float inside = x <= range.largest ? above : 0.0f;
  out[i] = range.none ? slope : inside;
}

INSTANTIATE_KERNEL("fake_quant_all", fake_quant, false)
INSTANTIATE_KERNEL("fake_quant_channels", fake_quant, true)
INSTANTIATE_KERNEL("fake_quant_grad_all", fake_quant_grad, false)
INSTANTIATE_KERNEL("fake_quant_grad_channels", fake_quant_grad, true)

// Values outside belong to the ends. Grid: columns / FAKE_QUANT_LANES, chunks.
kernel void fake_quant_ends(device const float* slopes [[buffer(0)]],
                            device const float* in [[buffer(1)]],
                            device const float* least [[buffer(2)]],
                            device const float* largest [[buffer(3)]],
                            device float* below [[buffer(4)]], device float* above [[buffer(5)]],
                            constant FakeQuantParams& p [[buffer(6)]],
                            uint2 position [[thread_position_in_grid]]) {
  const uint column = position.x * FAKE_QUANT_LANES;
  float from[FAKE_QUANT_LANES], to[FAKE_QUANT_LANES];
  float low[FAKE_QUANT_LANES], high[FAKE_QUANT_LANES];
  for (uint k = 0; k < FAKE_QUANT_LANES; ++k) {
    const uint channel = p.per_channel != 0 ? min(column + k, p.columns - 1) : 0;
    const Range range = find_range(least[channel], largest[channel], p);
    from[k] = range.none ? -INFINITY : range.least;
    to[k] = range.none ? INFINITY : range.largest;
    low[k] = high[k] = 0.0f;
  }
  const uint first = position.y * p.chunk, end = min(first + p.chunk, p.rows);
  for (uint row = first; row < end; ++row) {
    const ulong at = ulong(row) * p.columns + column;
    if (column + FAKE_QUANT_LANES <= p.columns && at + FAKE_QUANT_LANES <= p.elements) {
      for (uint k = 0; k < FAKE_QUANT_LANES; ++k) {
        const float x = in[at + k], slope = slopes[at + k];
        low[k] += x < from[k] ? slope : 0.0f;
        high[k] += x > to[k] ? slope : 0.0f;
      }
    } else {
      for (uint k = 0; k < FAKE_QUANT_LANES && column + k < p.columns && at + k < p.elements; ++k) {
        const float x = in[at + k], slope = slopes[at + k];
        low[k] += x < from[k] ? slope : 0.0f;
        high[k] += x > to[k] ? slope : 0.0f;
      }
    }
  }
  for (uint k = 0; k < FAKE_QUANT_LANES && column + k < p.columns; ++k) {
    below[position.y * p.columns + column + k] = low[k];
    above[position.y * p.columns + column + k] = high[k];
  }
}

// Grid: channels, or 1.
kernel void fake_quant_sum(device const float* parts [[buffer(0)]], device float* out [[buffer(1)]],
                           constant FakeQuantParams& p [[buffer(2)]],
                           uint channel [[thread_position_in_grid]]) {
  float sum = 0.0f;
  const uint first = p.per_channel != 0 ? channel : 0;
  const uint end = p.per_channel != 0 ? channel + 1 : p.columns;
  for (uint chunk = 0; chunk < p.chunks; ++chunk) {
    for (uint column = first; column < end; ++column) sum += parts[chunk * p.columns + column];
  }
  out[channel] = sum;
}
