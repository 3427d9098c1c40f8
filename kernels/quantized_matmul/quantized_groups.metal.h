// Products of a few rows with quantized weights where the threads of a simdgroup really run at once:
// its lanes, and the simdgroups that share its outputs, share the codes, each with eight neighbours at
// a time, which become float32 in registers.

#ifndef METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_GROUPS_METAL_H_
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_GROUPS_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/few_rows.metal.h"
#include "kernels/quantized_matmul/quantized_row.metal.h"

// Eight codes, as they lie in memory.
template <int kBits>
struct QuantizedEight {};
template <>
struct QuantizedEight<4> {
  using type = uint;
  // In half, the last bits of 1024 + code are the code, too, and the difference is exact.
  FEW_INLINE static void floats(uint codes, thread float (&to)[8]) {
    FEW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const half2 two =
          as_type<half2>((codes >> 4 * i & 0x000f000fu) | 0x64006400u) - half2(1024.0h);
      to[i] = float(two.x), to[i + 4] = float(two.y);
    }
  }
};
template <>
struct QuantizedEight<8> {
  using type = uint2;
  FEW_INLINE static void floats(uint2 codes, thread float (&to)[8]) {
    FEW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint word = i < 2 ? codes.x : codes.y;
      const half2 two =
          as_type<half2>((word >> i % 2 * 8 & 0x00ff00ffu) | 0x64006400u) - half2(1024.0h);
      to[i / 2 * 4 + i % 2] = float(two.x), to[i / 2 * 4 + i % 2 + 2] = float(two.y);
    }
  }
};

// Eight neighbours, which lie at a multiple of 16 bytes.
template <typename T>
FEW_INLINE inline void quantized_eight(device const T* from, thread float (&to)[8]) {
  FEW_UNROLL
  for (int i = 0; i < 8; i += kFewWide<T>) {
    float part[kFewWide<T>];
    few_floats(*(device const uint4*)(from + i), from, part);
    FEW_UNROLL
    for (int j = 0; j < kFewWide<T>; ++j) to[i + j] = part[j];
  }
}

// kColumns outputs a simdgroup. Grid: threadgroups along the outputs x blocks of kRows rows.
template <typename T, typename S, int kBits, int kRows, int kColumns, int kSteps>
[[kernel, max_total_threads_per_threadgroup(32 * QUANTIZED_SIMDGROUPS)]] void quantized_groups(
    device const T* x [[buffer(0)]], device const uchar* codes [[buffer(1)]],
    device const S* scales [[buffer(2)]], device const S* minima [[buffer(3)]],
    device T* y [[buffer(4)]], constant QuantizedParams& p [[buffer(5)]],
    constant uint& splits [[buffer(6)]], uint2 group [[threadgroup_position_in_grid]],
    uint thread_ [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  using Eight = QuantizedEight<kBits>;
  using Codes = typename Eight::type;
  constexpr int kSums = kRows * kColumns;
  threadgroup float space[QUANTIZED_SIMDGROUPS * kSums];
  const uint blocks = QUANTIZED_SIMDGROUPS / splits, part = simdgroup % splits;
  const long first = long(group.x * blocks + simdgroup / splits) * kColumns;
  const long first_row = long(group.y) * kRows;
  const uint inputs = uint(p.inputs), block = uint(p.block);
  long row_at[kRows], column[kColumns];
  FEW_UNROLL
  for (int r = 0; r < kRows; ++r) row_at[r] = metal::min(first_row + r, p.rows - 1) * p.inputs;
  FEW_UNROLL
  for (int c = 0; c < kColumns; ++c) column[c] = metal::min(first + c, p.outputs - 1);
  float sums[kSums] = {};
  uint begin = 0;
  if (((reinterpret_cast<ulong>(x) | reinterpret_cast<ulong>(codes)) & 15) == 0 &&
      inputs % 8 == 0) {
    begin = inputs;
    const uint step = splits * 256;
    for (uint at = (part * 32 + lane) * 8; at < inputs; at += kSteps * step) {
      Codes eights[kSteps][kColumns];
      float scale[kSteps][kColumns], minimum[kSteps][kColumns];
      FEW_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        // Behind the end it is the last ones, which are not added.
        const uint k = metal::min(at + s * step, inputs - 8), of_block = k / block;
        FEW_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          const QuantizedRow<S> row(p, codes, scales, minima, column[c]);
          eights[s][c] = *(device const Codes*)(row.codes + k * kBits / 8);
          scale[s][c] = row.scale(of_block);
          minimum[s][c] = row.minimum(of_block, scale[s][c]);
        }
      }
      FEW_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        const uint k = at + s * step;
        if (k >= inputs) break;
        float weights[kColumns][8];
        FEW_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          Eight::floats(eights[s][c], weights[c]);
          FEW_UNROLL
          for (int i = 0; i < 8; ++i) {
            weights[c][i] = metal::fma(weights[c][i], scale[s][c], minimum[s][c]);
          }
        }
        FEW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          float of_x[8];
          quantized_eight(x + row_at[r] + k, of_x);
          FEW_UNROLL
          for (int c = 0; c < kColumns; ++c) {
            FEW_UNROLL
            for (int i = 0; i < 8; ++i) {
              sums[r * kColumns + c] = metal::fma(of_x[i], weights[c][i], sums[r * kColumns + c]);
            }
          }
        }
      }
    }
  }
  for (uint k = begin + part * 32 + lane; k < inputs; k += splits * 32) {
    FEW_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const QuantizedRow<S> row(p, codes, scales, minima, column[c]);
      const float scale = row.scale(k / block);
      const float weight =
          metal::fma(quantized_code<kBits>(row.codes, k), scale, row.minimum(k / block, scale));
      FEW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sums[r * kColumns + c] =
            metal::fma(float(x[row_at[r] + k]), weight, sums[r * kColumns + c]);
      }
    }
  }
  few_share(sums, space, simdgroup, lane);
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (thread_ >= blocks * kSums) return;
  const long output = long(group.x * blocks + thread_ / kSums) * kColumns + thread_ % kColumns;
  const long row = first_row + thread_ % kSums / kColumns;
  if (row >= p.rows || output >= p.outputs) return;
  y[row * p.outputs + output] = T(few_total<kSums>(space, splits, thread_));
}

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_GROUPS_METAL_H_
