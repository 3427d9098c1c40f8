// The shaders of MetalLookupMatMul and MetalLookupWeights.

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/quantized_matmul/lookup_matmul_params.h"

using namespace metal;

// Eight codes, which fill kBits bytes.
template <int kBits>
inline ulong lookup_eight(device const uchar* from) {
  ulong word = 0;
  for (int i = 0; i < kBits; ++i) word |= ulong(from[i]) << 8 * i;
  return word;
}
template <int kBits>
inline uint lookup_code(ulong eight, int i) {
  return uint(eight >> i * kBits) & ((1u << kBits) - 1);
}
// Code i of a row.
template <int kBits>
inline uint lookup_one(device const uchar* row, long i) {
  const long bit = i * kBits, byte = bit / 8;
  const int shift = int(bit % 8);
  uint code = uint(row[byte]) >> shift;
  if (shift + kBits > 8) code |= uint(row[byte + 1]) << (8 - shift);
  return code & ((1u << kBits) - 1);
}

// An output of a few rows of x, by one thread. Grid: 1 x outputs x tiles of rows.
template <typename T, typename S, int kBits>
[[kernel]] void lookup_few(device const T* x [[buffer(0)]], device const uchar* codes [[buffer(1)]],
                           device const S* tables [[buffer(2)]], device T* y [[buffer(3)]],
                           constant LookupParams& p [[buffer(4)]],
                           uint3 position [[thread_position_in_grid]]) {
  device const uchar* const row = codes + long(position.y) * p.bytes;
  device const S* const table = tables + (position.y / p.group << kBits);
  const long first = long(position.z) * LOOKUP_ROWS;
  const int n = int(min(long(LOOKUP_ROWS), p.rows - first));
  const long whole = p.inputs / 8 * 8;
  float sums[LOOKUP_ROWS] = {};
  for (long at = 0; at < whole; at += 8) {
    const ulong eight = lookup_eight<kBits>(row + at / 8 * kBits);
    float weights[8];
    for (int i = 0; i < 8; ++i) weights[i] = float(table[lookup_code<kBits>(eight, i)]);
    for (int r = 0; r < LOOKUP_ROWS; ++r) {
      if (r >= n) break;
      device const T* const of = x + (first + r) * p.inputs + at;
      for (int i = 0; i < 8; ++i) sums[r] = fma(weights[i], float(of[i]), sums[r]);
    }
  }
  for (long at = whole; at < p.inputs; ++at) {
    const float weight = float(table[lookup_one<kBits>(row, at)]);
    for (int r = 0; r < n; ++r) {
      sums[r] = fma(weight, float(x[(first + r) * p.inputs + at]), sums[r]);
    }
  }
  for (int r = 0; r < n; ++r) y[(first + r) * p.outputs + position.y] = T(sums[r]);
}

// An output of a few rows of x, by a simdgroup, which has the output's table in threadgroup memory.
// Grid: threadgroups along the outputs x tiles of rows.
template <typename T, typename S, int kBits, int kRows>
[[kernel, max_total_threads_per_threadgroup(32 * LOOKUP_SIMDGROUPS)]] void lookup_groups(
    device const T* x [[buffer(0)]], device const uchar* codes [[buffer(1)]],
    device const S* tables [[buffer(2)]], device T* y [[buffer(3)]],
    constant LookupParams& p [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  constexpr int kValues = 1 << kBits;
  threadgroup float space[LOOKUP_SIMDGROUPS * kValues];
  const long asked = long(group.x) * LOOKUP_SIMDGROUPS + simdgroup;
  // Behind the last one it is that once more, which is not written.
  const long output = min(asked, p.outputs - 1), first = long(group.y) * kRows;
  threadgroup float* const table = space + simdgroup * kValues;
  device const S* const values = tables + (output / p.group << kBits);
  for (int i = int(lane); i < kValues; i += 32) table[i] = float(values[i]);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  device const uchar* const row = codes + output * p.bytes;
  long row_at[kRows];
  for (int r = 0; r < kRows; ++r) row_at[r] = min(first + r, p.rows - 1) * p.inputs;
  float sums[kRows] = {};
  const long whole = p.inputs / 8 * 8;
  for (long at = long(lane) * 8; at < whole; at += 256) {
    const ulong eight = lookup_eight<kBits>(row + at / 8 * kBits);
    float weights[8];
    for (int i = 0; i < 8; ++i) weights[i] = table[lookup_code<kBits>(eight, i)];
    for (int r = 0; r < kRows; ++r) {
      device const T* const of = x + row_at[r] + at;
      for (int i = 0; i < 8; ++i) sums[r] = fma(weights[i], float(of[i]), sums[r]);
    }
  }
  const long last = whole + lane;
  if (last < p.inputs) {
    const float weight = table[lookup_one<kBits>(row, last)];
    for (int r = 0; r < kRows; ++r) sums[r] = fma(weight, float(x[row_at[r] + last]), sums[r]);
  }
  for (int r = 0; r < kRows; ++r) sums[r] = simd_sum(sums[r]);
  if (lane != 0 || asked >= p.outputs) return;
  for (int r = 0; r < kRows; ++r) {
    if (first + r < p.rows) y[(first + r) * p.outputs + output] = T(sums[r]);
  }
}

// Eight neighbouring weights. Grid: those of a row x outputs.
template <typename T, typename S, int kBits>
[[kernel]] void lookup_unpack(device const uchar* codes [[buffer(0)]],
                              device const S* tables [[buffer(1)]], device T* to [[buffer(2)]],
                              constant LookupParams& p [[buffer(3)]],
                              uint2 position [[thread_position_in_grid]]) {
  device const uchar* const row = codes + long(position.y) * p.bytes;
  device const S* const table = tables + (position.y / p.group << kBits);
  const long at = long(position.x) * 8;
  device T* const weights = to + long(position.y) * p.inputs + at;
  if (at + 8 <= p.inputs) {
    const ulong eight = lookup_eight<kBits>(row + long(position.x) * kBits);
    for (int i = 0; i < 8; ++i) weights[i] = T(float(table[lookup_code<kBits>(eight, i)]));
    return;
  }
  for (long i = at; i < p.inputs; ++i) weights[i - at] = T(float(table[lookup_one<kBits>(row, i)]));
}

#define INSTANTIATE_ROWS(T, S, bits, rows)                                                      \
  INSTANTIATE_KERNEL("lookup_groups_" #T "_" #S "_" #bits "_" #rows, lookup_groups, T, S, bits, \
                     rows)
#define INSTANTIATE_BITS(T, S, bits)                                            \
  INSTANTIATE_KERNEL("lookup_few_" #T "_" #S "_" #bits, lookup_few, T, S, bits) \
  INSTANTIATE_ROWS(T, S, bits, 1)                                               \
  INSTANTIATE_ROWS(T, S, bits, 4)                                               \
  INSTANTIATE_KERNEL("lookup_unpack_" #T "_" #S "_" #bits, lookup_unpack, T, S, bits)
#define INSTANTIATE_SCALES(T, S) \
  INSTANTIATE_BITS(T, S, 2)      \
  INSTANTIATE_BITS(T, S, 3)      \
  INSTANTIATE_BITS(T, S, 4)      \
  INSTANTIATE_BITS(T, S, 6)      \
  INSTANTIATE_BITS(T, S, 8)
#define INSTANTIATE(T)         \
  INSTANTIATE_SCALES(T, float) \
  INSTANTIATE_SCALES(T, half)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
