// Quantization and back at once, in ranges that are given or found, of all elements or of channels.

#include <metal_stdlib>

#include "device/kernels/nn/quantize_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// The least and largest of a part of a channel. Grid: chunks, channels.
kernel void quantize_ends(device const float* in [[buffer(0)]], device float2* ends [[buffer(1)]],
                          constant QuantizeParams& p [[buffer(2)]],
                          uint2 position [[thread_position_in_grid]]) {
  const ulong count = p.outer * p.inner;
  ulong at = position.x * p.chunk;
  const ulong end = min(at + p.chunk, count);
  // Neighbours side by side: NaN does not count.
  float least[QUANTIZE_LANES], largest[QUANTIZE_LANES];
  for (uint k = 0; k < QUANTIZE_LANES; ++k) {
    least[k] = INFINITY;
    largest[k] = -INFINITY;
  }
  while (at < end) {
    const ulong outer = at / p.inner, inner = at - outer * p.inner;
    const ulong run = min(p.inner - inner, end - at);
    device const float* const from = in + (outer * p.channels + position.y) * p.inner + inner;
    ulong i = 0;
    for (; i + QUANTIZE_LANES <= run; i += QUANTIZE_LANES) {
      for (uint k = 0; k < QUANTIZE_LANES; ++k) {
        const float x = from[i + k];
        least[k] = x < least[k] ? x : least[k];
        largest[k] = x > largest[k] ? x : largest[k];
      }
    }
    for (; i < run; ++i) {
      least[0] = min(least[0], from[i]);
      largest[0] = max(largest[0], from[i]);
    }
    at += run;
  }
  for (uint k = 1; k < QUANTIZE_LANES; ++k) {
    least[0] = min(least[0], least[k]);
    largest[0] = max(largest[0], largest[k]);
  }
  ends[position.y * p.chunks + position.x] = float2(least[0], largest[0]);
}

// The channels' ranges and scales: the larger scale that keeps both ends within the whole numbers, and 0
// where it is; the end that does not set it moves. Grid: channels.
kernel void quantize_scales(device const float* least [[buffer(0)]],
                            device const float* largest [[buffer(1)]],
                            device const float2* ends [[buffer(2)]],
                            device float4* scales [[buffer(3)]],
                            constant QuantizeParams& p [[buffer(4)]],
                            uint channel [[thread_position_in_grid]]) {
  float low, high;
  if (p.given != 0) {
    low = least[channel];
    high = largest[channel];
  } else {
    low = INFINITY;
    high = -INFINITY;
    for (uint i = 0; i < p.chunks; ++i) {
      low = min(low, ends[channel * p.chunks + i].x);
      high = max(high, ends[channel * p.chunks + i].y);
    }
  }
  const float most = numeric_limits<float>::max();
  const float by_low = p.least * low > 0.0f ? p.least / low : most;
  const float by_high = p.largest * high > 0.0f ? p.largest / high : most;
  float scale, inverse;
  if (by_low < by_high) {
    scale = by_low;
    inverse = low / p.least;
    high = p.largest * inverse;
  } else {
    scale = by_high;
    inverse = high / p.largest;
    low = p.least * inverse;
  }
  scales[channel] = float4(scale, inverse, low, high);
}

// Grid: inner, channels, outer.
kernel void quantize_dequantize(device const float* in [[buffer(0)]],
                                device const float4* scales [[buffer(1)]],
                                device float* out [[buffer(2)]],
                                constant QuantizeParams& p [[buffer(3)]],
                                uint3 position [[thread_position_in_grid]]) {
  const ulong i = (position.z * ulong(p.channels) + position.y) * p.inner + position.x;
  const float4 range = scales[position.y];
  const float x = (p.given != 0 ? max(min(in[i], range.w), range.z) : in[i]) * range.x;
  out[i] = (p.half_up != 0 ? floor(x + 0.5f) : rint(x)) * range.y;
}

// round(x), several at a time: the addend is the number before a half.
inline float away(float x) { return trunc(x + copysign(0x1.fffffep-2f, x)); }

template <uint kRounding>
inline float quantized(float in, AffineChannel c, float least, float largest) {
  const float below = in < c.high ? in : c.high;
  const float scaled = ((below > c.low ? below : c.low) + c.before) * c.scale;
  const float x = scaled + c.after;
  const float whole = kRounding == AFFINE_AWAY   ? away(x)
                      : kRounding == AFFINE_EVEN ? rint(x)
                      : kRounding == AFFINE_UP   ? trunc(x + 0.5f)
                                                 : away(scaled) + c.after;
  const float kept = whole < largest ? whole : largest;
  return kept > least ? kept : least;
}

// A whole number of 16 bits: beside 3 * 2^22 it is the mantissa's last bits. Conversions, which keep numbers within the
// type's, are no work for vectors.
template <typename T>
inline T stored(float whole) {
  return T(as_type<int>(whole + 12582912.0f));
}
template <>
inline int stored<int>(float whole) {
  return int(whole);
}

// Neighbours side by side. Grid of these: inner in parts of QUANTIZE_LANES, channels, outer.
template <typename T, uint kRounding>
kernel void quantize_affine(device const float* in [[buffer(0)]], device T* out [[buffer(1)]],
                            device const AffineChannel* channels [[buffer(2)]],
                            constant AffineParams& p [[buffer(3)]],
                            uint3 position [[thread_position_in_grid]]) {
  const AffineChannel c = channels[position.y];
  const float least = p.least, largest = p.largest;
  const ulong first = ulong(position.x) * QUANTIZE_LANES, left = p.inner - first;
  const ulong i = (position.z * ulong(p.channels) + position.y) * p.inner + first;
  if (left >= QUANTIZE_LANES) {
    float x[QUANTIZE_LANES];
    for (uint k = 0; k < QUANTIZE_LANES; ++k) {
      x[k] = quantized<kRounding>(in[i + k], c, least, largest);
    }
    for (uint k = 0; k < QUANTIZE_LANES; ++k) out[i + k] = stored<T>(x[k]);
  } else {
    for (uint k = 0; k < left; ++k) {
      out[i + k] = stored<T>(quantized<kRounding>(in[i + k], c, least, largest));
    }
  }
}

template <typename T, typename To>
kernel void dequantize_affine(device const T* in [[buffer(0)]], device To* out [[buffer(1)]],
                              device const AffineChannel* channels [[buffer(2)]],
                              constant AffineParams& p [[buffer(3)]],
                              uint3 position [[thread_position_in_grid]]) {
  const AffineChannel c = channels[position.y];
  const ulong first = ulong(position.x) * QUANTIZE_LANES, left = p.inner - first;
  const ulong i = (position.z * ulong(p.channels) + position.y) * p.inner + first;
  if (left >= QUANTIZE_LANES) {
    float x[QUANTIZE_LANES];
    for (uint k = 0; k < QUANTIZE_LANES; ++k) {
      x[k] = (float(in[i + k]) + c.before) * c.scale + c.after;
    }
    for (uint k = 0; k < QUANTIZE_LANES; ++k) out[i + k] = To(x[k]);
  } else {
    for (uint k = 0; k < left; ++k) {
      out[i + k] = To((float(in[i + k]) + c.before) * c.scale + c.after);
    }
  }
}

#define AFFINE(type)                                                                      \
  INSTANTIATE_KERNEL("quantize_affine_0_" #type, quantize_affine, type, AFFINE_AWAY)      \
  INSTANTIATE_KERNEL("quantize_affine_1_" #type, quantize_affine, type, AFFINE_EVEN)      \
  INSTANTIATE_KERNEL("quantize_affine_2_" #type, quantize_affine, type, AFFINE_UP)        \
  INSTANTIATE_KERNEL("quantize_affine_3_" #type, quantize_affine, type, AFFINE_FIRST)     \
  INSTANTIATE_KERNEL("dequantize_affine_" #type "_float", dequantize_affine, type, float) \
  IF_BFLOAT(                                                                              \
      INSTANTIATE_KERNEL("dequantize_affine_" #type "_bfloat", dequantize_affine, type, bfloat))
AFFINE(char)
AFFINE(uchar)
AFFINE(short)
AFFINE(ushort)
AFFINE(int)

// Gradients within the range pass. Grid: inner, channels, outer.
kernel void quantize_grad(device const float* gradients [[buffer(0)]],
                          device const float* in [[buffer(1)]],
                          device const float* least [[buffer(2)]],
                          device const float* largest [[buffer(3)]],
                          device float* out [[buffer(4)]], constant QuantizeParams& p [[buffer(5)]],
                          uint3 position [[thread_position_in_grid]]) {
  const ulong i = (position.z * ulong(p.channels) + position.y) * p.inner + position.x;
  const float x = in[i];
  // No branch, which would be taken at random.
  const float above = x >= least[position.y] ? 1.0f : 0.0f;
  const float below = x <= largest[position.y] ? 1.0f : 0.0f;
  out[i] = gradients[i] * (above * below);
}
