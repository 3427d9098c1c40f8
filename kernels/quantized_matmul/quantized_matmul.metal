// The shaders of MetalQuantizedMatMul and MetalDequantize.

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/quantized_matmul/quantized_row.metal.h"

using namespace metal;

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
IF_BFLOAT(template <> struct Packed4<bfloat> { using type = packed_bfloat4; };)

// An output of a few rows of x, by one thread. Grid: 1 x outputs x tiles of rows.
template <typename T, typename S, int kBits>
[[kernel]] void quantized_few(device const T* x [[buffer(0)]],
                              device const uchar* codes [[buffer(1)]],
                              device const S* scales [[buffer(2)]],
                              device const S* minima [[buffer(3)]], device T* y [[buffer(4)]],
                              constant QuantizedParams& p [[buffer(5)]],
                              uint3 position [[thread_position_in_grid]]) {
  // Fours of codes that are taken at once.
  constexpr int kFours = 4, kCodes = 4 * kFours;
  const QuantizedRow<S> row(p, codes, scales, minima, position.y);
  const long first = long(position.z) * QUANTIZED_FEW_ROWS;
  const int n = int(min(long(QUANTIZED_FEW_ROWS), p.rows - first));
  const long whole = p.inputs / kCodes * kCodes;
  float4 sums[QUANTIZED_FEW_ROWS] = {};
  long next = 0, group = -1;
  for (long at = 0; at < whole; at += kCodes) {
    if (at == next) ++group, next += p.block;
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
  for (long i = whole; i < p.inputs; ++i) {
    const long of_block = i / p.block;
    const float scale = row.scale(of_block);
    const float weight =
        fma(quantized_code<kBits>(row.codes, i), scale, row.minimum(of_block, scale));
    for (int r = 0; r < QUANTIZED_FEW_ROWS; ++r) {
      if (r < n) sums[r].x = fma(weight, float(x[(first + r) * p.inputs + i]), sums[r].x);
    }
  }
  for (int r = 0; r < n; ++r) {
    const float4 four = sums[r];
    y[(first + r) * p.outputs + position.y] = T((four.x + four.y) + (four.z + four.w));
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
  INSTANTIATE_KERNEL("quantized_few_" #T "_" #S "_" #bits, quantized_few, T, S, bits)             \
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
IF_BFLOAT(INSTANTIATE(bfloat))
