// The shaders of MetalQuantizedMatMul and MetalDequantize.

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/quantized_matmul/quantized_matmul_params.h"

using namespace metal;

template <typename S>
struct QuantizedRow {
  device const uchar* codes;
  device const S *scales, *minima;
  long block;
  bool use_minima;
  float middle;

  QuantizedRow(constant QuantizedParams& p, device const uchar* all_codes,
               device const S* all_scales, device const S* all_minima, long output)
      : codes(all_codes + output * p.bytes),
        scales(all_scales + output * p.row_groups),
        minima(all_minima + (p.use_minima != 0 ? output * p.row_groups : 0)),
        block(p.block),
        use_minima(p.use_minima != 0),
        middle(p.middle) {}

  float scale(long group) thread const { return float(scales[group]); }
  float minimum(long group, float scale) thread const {
    return use_minima ? float(minima[group]) : -middle * scale;
  }
};

// Code i of a row, whose first byte is at `codes`.
template <int kBits>
inline float quantized_code(device const uchar* codes, long i) {
  return kBits == 8 ? float(codes[i]) : float(codes[i / 2] >> (i % 2 * 4) & 15);
}

// Four codes of a row, of which the first begins a byte.
template <int kBits>
inline float4 quantized_codes(device const uchar* from) {
  if (kBits == 8) return float4(uchar4(*reinterpret_cast<device const packed_uchar4*>(from)));
  const uint word = uint(from[0]) | uint(from[1]) << 8;
  return float4(uint4(word) >> uint4(0, 4, 8, 12) & uint4(15));
}

// Four neighbours, of no alignment but their own.
template <typename T>
struct Packed4 {};
template <>
struct Packed4<float> {
  using type = packed_float4;
};
template <>
struct Packed4<half> {
  using type = packed_half4;
};
template <>
struct Packed4<bfloat> {
  using type = packed_bfloat4;
};

template <int kLanes>
inline float quantized_sum(float x) {
  return simd_sum(x);
}
template <>
inline float quantized_sum<1>(float x) {
  return x;
}

// An output of a few rows of x: kLanes threads that run at once, or one. Grid: kLanes x outputs x
// tiles of rows.
template <typename T, typename S, int kBits, int kLanes>
[[kernel]] void quantized_few(device const T* x [[buffer(0)]],
                              device const uchar* codes [[buffer(1)]],
                              device const S* scales [[buffer(2)]],
                              device const S* minima [[buffer(3)]], device T* y [[buffer(4)]],
                              constant QuantizedParams& p [[buffer(5)]],
                              uint3 position [[thread_position_in_grid]]) {
  // Fours of codes that a thread takes at once.
  constexpr int kFours = kLanes == 1 ? 4 : 2, kCodes = 4 * kFours;
  const QuantizedRow<S> row(p, codes, scales, minima, position.y);
  const long first = long(position.z) * QUANTIZED_FEW_ROWS;
  const int n = int(min(long(QUANTIZED_FEW_ROWS), p.rows - first));
  const long whole = p.inputs / kCodes * kCodes;
  float4 sums[QUANTIZED_FEW_ROWS] = {};
  long next = 0, group = -1;
  for (long at = long(position.x) * kCodes; at < whole; at += kLanes * kCodes) {
    // One thread sees each block begin.
    if (kLanes != 1) {
      group = uint(at) / uint(p.block);
    } else if (at == next) {
      ++group, next += p.block;
    }
    const float scale = row.scale(group), minimum = row.minimum(group, scale);
    device const uchar* const from = row.codes + at * kBits / 8;
    float4 weights[kFours];
    for (int j = 0; j < kFours; ++j) {
      weights[j] =
          fma(quantized_codes<kBits>(from + j * kBits / 2), float4(scale), float4(minimum));
    }
    for (int r = 0; r < QUANTIZED_FEW_ROWS; ++r) {
      if (r >= n) break;
      device const auto* const of = reinterpret_cast<device const typename Packed4<T>::type*>(
          x + (first + r) * p.inputs + at);
      for (int j = 0; j < kFours; ++j) {
        sums[r] = fma(weights[j], float4(vec<T, 4>(of[j])), sums[r]);
      }
    }
  }
  for (long i = whole + position.x; i < p.inputs; i += kLanes) {
    const long group = i / p.block;
    const float scale = row.scale(group);
    const float weight = fma(quantized_code<kBits>(row.codes, i), scale, row.minimum(group, scale));
    for (int r = 0; r < QUANTIZED_FEW_ROWS; ++r) {
      if (r < n) sums[r].x = fma(weight, float(x[(first + r) * p.inputs + i]), sums[r].x);
    }
  }
  for (int r = 0; r < QUANTIZED_FEW_ROWS; ++r) {
    const float4 four = sums[r];
    const float sum = quantized_sum<kLanes>((four.x + four.y) + (four.z + four.w));
    if (r < n && position.x == 0) y[(first + r) * p.outputs + position.y] = T(sum);
  }
}

// kCodes neighbouring codes, all of one block. Grid: those of a row x outputs.
template <typename T, typename S, int kBits, int kCodes>
[[kernel]] void quantized_unpack(device const uchar* codes [[buffer(0)]],
                                 device const S* scales [[buffer(1)]],
                                 device const S* minima [[buffer(2)]], device T* to [[buffer(3)]],
                                 constant QuantizedParams& p [[buffer(4)]],
                                 uint2 position [[thread_position_in_grid]]) {
  const QuantizedRow<S> row(p, codes, scales, minima, position.y);
  const long first = long(position.x) * kCodes, group = uint(first) / uint(p.block);
  const float scale = row.scale(group), minimum = row.minimum(group, scale);
  device T* const at = to + long(position.y) * p.inputs + first;
  if (first + kCodes <= p.inputs) {
    device auto* const fours = reinterpret_cast<device typename Packed4<T>::type*>(at);
    for (int j = 0; j < kCodes / 4; ++j) {
      const float4 four = quantized_codes<kBits>(row.codes + (first + 4 * j) * kBits / 8);
      fours[j] = vec<T, 4>(fma(four, float4(scale), float4(minimum)));
    }
    return;
  }
  for (long i = first; i < p.inputs; ++i) {
    at[i - first] = T(fma(quantized_code<kBits>(row.codes, i), scale, minimum));
  }
}

#define INSTANTIATE_BITS(T, S, bits)                                                              \
  INSTANTIATE_KERNEL("quantized_few_" #T "_" #S "_" #bits "_1", quantized_few, T, S, bits, 1)     \
  INSTANTIATE_KERNEL("quantized_few_" #T "_" #S "_" #bits "_32", quantized_few, T, S, bits, 32)   \
  INSTANTIATE_KERNEL("quantized_unpack_" #T "_" #S "_" #bits "_8", quantized_unpack, T, S, bits,  \
                     8)                                                                           \
  INSTANTIATE_KERNEL("quantized_unpack_" #T "_" #S "_" #bits "_32", quantized_unpack, T, S, bits, \
                     QUANTIZED_UNIT)
#define INSTANTIATE_SCALES(T, S) \
  INSTANTIATE_BITS(T, S, 4)      \
  INSTANTIATE_BITS(T, S, 8)
#define INSTANTIATE(T)         \
  INSTANTIATE_SCALES(T, float) \
  INSTANTIATE_SCALES(T, half)
INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
