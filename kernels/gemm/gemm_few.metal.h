// Products of a few rows by a matrix, which are bound by how fast the matrix is read: the lanes of a
// simdgroup, and the simdgroups of a threadgroup, share the terms, each lane with 16 bytes at a time.
// Sums are float32, whatever T. For plain products whose terms are neighbours in a.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_FEW_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_FEW_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/few_rows.metal.h"
#include "kernels/gemm/gemm.metal.h"
#include "kernels/gemm/gemm_few_params.h"

// Adds the products of 16 bytes of each column, from term k on, to each row's sums.
template <int kRows, int kColumns, typename T>
FEW_INLINE inline void few_add(thread const FewWords (&lines)[kColumns], device const T* a,
                               thread const long (&row_at)[kRows], uint k,
                               thread float (&sums)[kRows * kColumns]) {
  constexpr int kWide = kFewWide<T>;
  float weights[kColumns][kWide];
  FEW_UNROLL
  for (int c = 0; c < kColumns; ++c) few_floats(lines[c], a, weights[c]);
  FEW_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float x[kWide];
    few_floats(*(device const uint4*)(a + row_at[r] + k), a, x);
    FEW_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      FEW_UNROLL
      for (int i = 0; i < kWide; ++i) {
        sums[r * kColumns + c] = metal::fma(x[i], weights[c][i], sums[r * kColumns + c]);
      }
    }
  }
}
// Adds x times 16 bytes of a row to its columns' sums.
template <int kWide, typename T>
FEW_INLINE inline void few_add(uint4 line, device const T* b, float x, thread float* sums) {
  float weights[kWide];
  few_floats(line, b, weights);
  FEW_UNROLL
  for (int i = 0; i < kWide; ++i) sums[i] = metal::fma(x, weights[i], sums[i]);
}

// Where b's columns are lines of neighbouring terms: a simdgroup has kColumns of them, which
// `splits` simdgroups share. Grid: threadgroups along the columns, blocks of kRows rows, products.
template <int kRows, int kColumns, typename T, typename Epilogue>
FEW_INLINE inline void gemm_few_lines(device const T* a, device const T* b, device T* out,
                                      constant GemmParams& params, uint splits, Epilogue epilogue,
                                      threadgroup float* space, uint3 group, uint thread_,
                                      uint simdgroup, uint lane) {
  constexpr int kWide = kFewWide<T>, kSums = kRows * kColumns;
  // 16 bytes of each column at a time, or twice that.
  constexpr int kSteps = kSums > 8 ? 1 : 2;
  const GemmOffsets offsets = gemm_offsets(params, group.z);
  const uint blocks = GEMM_FEW_SIMDGROUPS / splits, part = simdgroup % splits;
  const uint first = (group.x * blocks + simdgroup / splits) * kColumns;
  const long first_row = long(group.y) * kRows;
  const uint depth = params.depth;
  // Rows and columns beyond the last are summed as the last, and not stored.
  long row_at[kRows], column_at[kColumns];
  FEW_UNROLL
  for (int r = 0; r < kRows; ++r) {
    row_at[r] = offsets.a + metal::min(first_row + r, params.rows - 1) * params.a_x;
  }
  FEW_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    column_at[c] = offsets.b + long(metal::min(first + c, params.columns - 1)) * params.b_column;
  }
  float sums[kSums] = {};
  uint begin = 0;
  if (((reinterpret_cast<ulong>(a + offsets.a) | reinterpret_cast<ulong>(b + offsets.b)) & 15) ==
          0 &&
      ((params.rows > 1 ? params.a_x : 0) | params.b_column) % kWide == 0) {
    const uint step = splits * 32 * kWide;
    uint at = (part * 32 + lane) * kWide;
    begin = depth / kWide * kWide;
    for (; at + (kSteps - 1) * step < begin; at += kSteps * step) {
      uint4 lines[kSteps][kColumns];
      FEW_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        FEW_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          lines[s][c] = *(device const uint4*)(b + column_at[c] + at + s * step);
        }
      }
      FEW_UNROLL
      for (int s = 0; s < kSteps; ++s) few_add(lines[s], a, row_at, at + s * step, sums);
    }
    for (; at < begin; at += step) {
      uint4 lines[kColumns];
      FEW_UNROLL
      for (int c = 0; c < kColumns; ++c) lines[c] = *(device const uint4*)(b + column_at[c] + at);
      few_add(lines, a, row_at, at, sums);
    }
  }
  for (uint k = begin + part * 32 + lane; k < depth; k += splits * 32) {
    FEW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float x = float(a[row_at[r] + k]);
      FEW_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        sums[r * kColumns + c] = metal::fma(x, float(b[column_at[c] + k]), sums[r * kColumns + c]);
      }
    }
  }

  few_share(sums, space, simdgroup, lane);
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (thread_ >= blocks * kSums) return;
  const uint block = thread_ / kSums, i = thread_ % kSums;
  const uint column = (group.x * blocks + block) * kColumns + i % kColumns;
  const long row = first_row + i / kColumns;
  if (row >= params.rows || column >= params.columns) return;
  const long at = offsets.out + row * params.out_point + long(column);
  out[at] = T(epilogue(few_total<kSums>(space, splits, thread_), epilogue.column(column), at));
}

// Where b's rows are lines of neighbouring columns: kLanes lanes have 16 bytes of a row each, and the
// others, and the other simdgroups, other rows. Grid: threadgroups along the columns, blocks of rows
// of a, products.
template <int kRows, int kLanes, typename T, typename Epilogue>
FEW_INLINE inline void gemm_few_columns(device const T* a, device const T* b, device T* out,
                                        constant GemmParams& params, Epilogue epilogue,
                                        threadgroup float* space, uint3 group, uint thread_,
                                        uint simdgroup, uint lane) {
  constexpr int kWide = kFewWide<T>, kSums = kRows * kWide;
  // At once, of neighbours: as many as there are registers for.
  constexpr int kTerms = kSums > 32 ? kWide / 2 : kWide;
  constexpr uint kColumns = kLanes * kWide;                   // of the threadgroup
  constexpr uint kParts = GEMM_FEW_SIMDGROUPS * 32 / kLanes;  // of the terms
  const GemmOffsets offsets = gemm_offsets(params, group.z);
  const uint part = simdgroup * (32 / kLanes) + lane / kLanes;
  const uint first = group.x * kColumns, column = first + lane % kLanes * kWide;
  const long first_row = long(group.y) * kRows;
  const uint depth = params.depth;
  long row_at[kRows];
  FEW_UNROLL
  for (int r = 0; r < kRows; ++r) {
    row_at[r] = offsets.a + metal::min(first_row + r, params.rows - 1) * params.a_x;
  }
  float sums[kSums] = {};
  if (((reinterpret_cast<ulong>(a + offsets.a) | reinterpret_cast<ulong>(b + offsets.b)) & 15) ==
          0 &&
      ((params.rows > 1 ? params.a_x : 0) | params.b_row | long(params.columns)) % kWide == 0) {
    device const T* const from = b + offsets.b + metal::min(column, params.columns - uint(kWide));
    uint k = part * kTerms;
    for (; k + kTerms <= depth; k += kParts * kTerms) {
      uint4 lines[kTerms], xs[kRows];
      FEW_UNROLL
      for (int u = 0; u < kTerms; ++u) {
        lines[u] = *(device const uint4*)(from + long(k + u) * params.b_row);
      }
      FEW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        device const T* const x = a + row_at[r] + k;
        xs[r] =
            kTerms == kWide ? *(device const uint4*)x : uint4(*(device const uint2*)x, uint2(0));
      }
      FEW_UNROLL
      for (int u = 0; u < kTerms; ++u) {
        FEW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          float x[kWide];
          few_floats(xs[r], a, x);
          few_add<kWide>(lines[u], b, x[u], sums + r * kWide);
        }
      }
    }
    for (; k < depth; ++k) {
      const uint4 line = *(device const uint4*)(from + long(k) * params.b_row);
      FEW_UNROLL
      for (int r = 0; r < kRows; ++r)
        few_add<kWide>(line, b, float(a[row_at[r] + k]), sums + r * kWide);
    }
  } else {
    for (uint k = part; k < depth; k += kParts) {
      device const T* const from = b + offsets.b + long(k) * params.b_row;
      FEW_UNROLL
      for (int i = 0; i < kWide; ++i) {
        const float weight = float(from[metal::min(column + i, params.columns - 1)]);
        FEW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          sums[r * kWide + i] = metal::fma(float(a[row_at[r] + k]), weight, sums[r * kWide + i]);
        }
      }
    }
  }

  FewSum<kSums, kLanes>::run(sums, lane);
  // A lane's result: its share of the sums of its columns, or, where there are few, one that others have,
  // too.
  constexpr int kGroups = 32 / kLanes, kLeft = kSums > kGroups ? kSums / kGroups : 1;
  constexpr int kAlike = kSums > kGroups ? 1 : kGroups / kSums;
  if (lane / kLanes % kAlike == 0) {
    FEW_UNROLL
    for (int i = 0; i < kLeft; ++i) {
      const uint number = lane / kLanes / kAlike * kLeft + i;
      space[(simdgroup * kSums + number) * kLanes + lane % kLanes] = sums[i];
    }
  }
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  for (uint i = thread_; i < kRows * kColumns; i += 32 * GEMM_FEW_SIMDGROUPS) {
    const uint in = i % kColumns, at_column = first + in;
    const long row = first_row + i / kColumns;
    if (row >= params.rows || at_column >= params.columns) continue;
    const uint number = i / kColumns * kWide + in % kWide;
    float sum = 0.0f;
    for (uint s = 0; s < GEMM_FEW_SIMDGROUPS; ++s) {
      sum += space[(s * kSums + number) * kLanes + in / kWide];
    }
    const long at = offsets.out + row * params.out_point + long(at_column);
    out[at] = T(epilogue(sum, epilogue.column(at_column), at));
  }
}

#define GEMM_FEW_THREADS (32 * GEMM_FEW_SIMDGROUPS)

// kColumns: of a simdgroup, where lines are terms, or lanes along the columns.
template <typename T, int kRows, int kColumns, bool kLines, typename Epilogue>
FEW_INLINE inline void gemm_few_any(device const T* a, device const T* b, device T* out,
                                    constant GemmParams& params, uint splits, Epilogue epilogue,
                                    threadgroup float* space, uint3 group, uint thread_,
                                    uint simdgroup, uint lane) {
  if constexpr (kLines) {
    gemm_few_lines<kRows, kColumns>(a, b, out, params, splits, epilogue, space, group, thread_,
                                    simdgroup, lane);
  } else {
    gemm_few_columns<kRows, kColumns>(a, b, out, params, epilogue, space, group, thread_, simdgroup,
                                      lane);
  }
}

template <typename T, int kRows, int kColumns, bool kLines>
constexpr constant int kFewSpace =
    GEMM_FEW_SIMDGROUPS * kRows * kColumns * (kLines ? 1 : kFewWide<T>);

template <typename T, int kRows, int kColumns, bool kLines>
[[kernel, max_total_threads_per_threadgroup(GEMM_FEW_THREADS)]] void gemm_few(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device T* out [[buffer(2)]],
    constant GemmParams& params [[buffer(3)]], device const T* gamma [[buffer(4)]],
    device const T* beta [[buffer(5)]], device const T* mean [[buffer(6)]],
    device const T* variance [[buffer(7)]], device const T* residual [[buffer(8)]],
    constant EpilogueParams& epilogue [[buffer(9)]], constant uint& splits [[buffer(10)]],
    uint3 group [[threadgroup_position_in_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float space[kFewSpace<T, kRows, kColumns, kLines>];
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  gemm_few_any<T, kRows, kColumns, kLines>(a, b, out, params, splits, fused, space, group, thread_,
                                           simdgroup, lane);
}

// Written once in a library that has these shaders.
#define GEMM_FEW_KERNELS_OF(T, rows)                                                          \
  INSTANTIATE_KERNEL("gemm_few_lines_" #T "_" #rows, gemm_few, T, rows, GEMM_FEW_LINES, true) \
  INSTANTIATE_KERNEL("gemm_few_columns_" #T "_" #rows, gemm_few, T, rows, GEMM_FEW_LANES, false)
#define GEMM_FEW_KERNELS_WITH(T) \
  GEMM_FEW_KERNELS_OF(T, 1)      \
  GEMM_FEW_KERNELS_OF(T, 2)      \
  GEMM_FEW_KERNELS_OF(T, 4)      \
  GEMM_FEW_KERNELS_OF(T, 8)
#define GEMM_FEW_KERNELS       \
  GEMM_FEW_KERNELS_WITH(float) \
  GEMM_FEW_KERNELS_WITH(half)  \
  IF_BFLOAT(GEMM_FEW_KERNELS_WITH(bfloat))

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_FEW_METAL_H_
