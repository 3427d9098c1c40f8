// Products of float32 matrices in blocks, where a matrix unit would cut them to 10 bits and 8x8 matrices
// are shuffles: tiles of a and b come into threadgroup memory as in gemm_blocks.metal.h, and each
// thread multiplies and adds 8 rows by 8 columns.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_FLOATS_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_FLOATS_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/gemm_blocks.metal.h"

using namespace metal;

// A simdgroup has 32 rows and 64 columns: 4 threads down, 8 across. Row i of a thread is
// 16 (i / 4) + 4 y + i % 4, so that lanes read the same of a, or neighbours of it. Column j is
// 32 (j / 4) + 4 x + j % 4 where columns are neighbours in the tile, and x + 8 j where terms are: both
// are read 16 bytes at a time, each from banks of its own.
template <bool kTurned, int kLine>
struct FloatsOfA {
  ROWS_INLINE static void load(threadgroup const float* tile, uint y, thread float (&to)[4][8]) {
    GEMM_UNROLL
    for (int half_ = 0; half_ < 2; ++half_) {
      GEMM_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * half_ + 4 * int(y);
        if (kTurned) {
          const float4 rows = *(threadgroup const float4*)(tile + i * kLine + row);
          GEMM_UNROLL
          for (int r = 0; r < 4; ++r) to[i][4 * half_ + r] = rows[r];
        } else {
          const float4 terms = *(threadgroup const float4*)(tile + (row + i) * kLine);
          GEMM_UNROLL
          for (int k = 0; k < 4; ++k) to[k][4 * half_ + i] = terms[k];
        }
      }
    }
  }
};
template <bool kTurned, int kLine>
struct FloatsOfB {
  ROWS_INLINE static int column(uint x, int j) {
    return kTurned ? int(x) + 8 * j : 32 * (j / 4) + 4 * int(x) + j % 4;
  }
  ROWS_INLINE static void load(threadgroup const float* tile, uint x, thread float (&to)[4][8]) {
    GEMM_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (kTurned) {
        const float4 terms = *(threadgroup const float4*)(tile + column(x, i) * kLine);
        GEMM_UNROLL
        for (int k = 0; k < 4; ++k) to[k][i] = terms[k];
      } else {
        const int k = i / 2, first = i % 2 * 4;
        const float4 columns = *(threadgroup const float4*)(tile + k * kLine + column(x, first));
        GEMM_UNROLL
        for (int j = 0; j < 4; ++j) to[k][first + j] = columns[j];
      }
    }
  }
};

template <int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles, int kStages,
          int kShares>
struct GemmFloats {
  static_assert(kRowTiles == 2 && kColumnTiles == 8 && kShares == 1, "32 x 64 a simdgroup");
  static constexpr constant int kAcross = kColumns / 64;
  static constexpr constant int kThreads = kRows / 32 * kAcross * 32;
  static constexpr constant int kTileA = GEMM_BLOCK_TILE(kRows, kDepth, 4);
  static constexpr constant int kTileB = GEMM_BLOCK_TILE(kColumns, kDepth, 4);
  static constexpr constant int kSpaceLine = 8 * kColumnTiles + 4, kSpace = 16 * kSpaceLine;

  template <bool kTurnedA, bool kTurnedB, typename CopyA, typename CopyB>
  ROWS_INLINE static void sum(CopyA of_a, CopyB of_b, long terms, threadgroup float* memory,
                              int simd_row, int simd_column, uint2 lane_at,
                              thread float (&sums)[8][8]) {
    constexpr int kLineA = GEMM_BLOCK_LINE(kTurnedA ? kRows : kDepth, 4);
    constexpr int kLineB = GEMM_BLOCK_LINE(kTurnedB ? kDepth : kColumns, 4);
    threadgroup float* const b_memory = memory + kStages * kTileA;
    const int steps = int((terms + kDepth - 1) / kDepth);
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < steps) {
        of_a.next(memory + s * kTileA);
        of_b.next(b_memory + s * kTileB);
      }
      gemm_end_copies();
    }
    int stage = 0, next = kStages - 1;
    for (int step = 0; step < steps; ++step) {
      gemm_wait_for_copies<kStages - 2>();
      metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      if (step + kStages - 1 < steps) {
        of_a.next(memory + next * kTileA);
        of_b.next(b_memory + next * kTileB);
      }
      gemm_end_copies();
      threadgroup const float* const a_tile =
          memory + stage * kTileA + (kTurnedA ? simd_row : simd_row * kLineA);
      threadgroup const float* const b_tile =
          b_memory + stage * kTileB + (kTurnedB ? simd_column * kLineB : simd_column);
      GEMM_UNROLL
      for (int k = 0; k < kDepth; k += 4) {
        float left[4][8], right[4][8];
        FloatsOfA<kTurnedA, kLineA>::load(a_tile + (kTurnedA ? k * kLineA : k), lane_at.y, left);
        FloatsOfB<kTurnedB, kLineB>::load(b_tile + (kTurnedB ? k : k * kLineB), lane_at.x, right);
        GEMM_UNROLL
        for (int of_four = 0; of_four < 4; ++of_four) {
          GEMM_UNROLL
          for (int i = 0; i < 8; ++i) {
            GEMM_UNROLL
            for (int j = 0; j < 8; ++j) {
              sums[i][j] = metal::fma(left[of_four][i], right[of_four][j], sums[i][j]);
            }
          }
        }
      }
      if (++stage == kStages) stage = 0;
      if (++next == kStages) next = 0;
    }
  }

  template <bool kTurnedA, bool kTurnedB>
  ROWS_INLINE static void plain_sum(const GemmPlace<float> place, threadgroup float* memory,
                                    int simd_row, int simd_column, uint2 lane_at,
                                    thread float (&sums)[8][8], uint thread_) {
    GemmCopyA<float, kRows, kDepth, kThreads, kTurnedA> of_a(place.a, kTurnedA ? 0 : place.row,
                                                             kTurnedA ? place.row : 0, thread_);
    GemmCopyB<float, kColumns, kDepth, kThreads, kTurnedB> of_b(
        place.b, kTurnedB ? place.column : 0, kTurnedB ? 0 : place.column, thread_);
    sum<kTurnedA, kTurnedB>(of_a, of_b, place.terms, memory, simd_row, simd_column, lane_at, sums);
  }

  // A thread's sums into its simdgroup's space, 16 rows of them.
  template <bool kTurnedB>
  ROWS_INLINE static void put(threadgroup float* space, int half_, uint2 lane_at,
                              thread float (&sums)[8][8]) {
    GEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      GEMM_UNROLL
      for (int j = 0; j < 8; ++j) {
        space[(4 * int(lane_at.y) + i) * kSpaceLine +
              FloatsOfB<kTurnedB, 0>::column(lane_at.x, j)] = sums[4 * half_ + i][j];
      }
    }
  }

  template <bool kConv = false, typename Epilogue>
  ROWS_INLINE static void run(device const float* a, device const float* b, device float* out,
                              constant GemmParams& params, Epilogue epilogue,
                              threadgroup float* memory, uint3 group, uint thread_, uint simdgroup,
                              uint lane) {
    const GemmPlace<float> place(a, b, params, group, kRows, kColumns);
    float sums[8][8];
    GEMM_UNROLL
    for (int i = 0; i < 8; ++i) {
      GEMM_UNROLL
      for (int j = 0; j < 8; ++j) sums[i][j] = 0.0f;
    }
    const int simd_row = int(simdgroup) / kAcross * 32, simd_column = int(simdgroup) % kAcross * 64;
    const uint2 lane_at = uint2(lane % 8, lane / 8);
    if (kConv) {
      GemmConvCopy<kRows, kDepth, kThreads, float> of_a(a, params, group.z, place, thread_);
      GemmCopyB<float, kColumns, kDepth, kThreads, false> of_b(place.b, 0, place.column, thread_);
      sum<false, false>(of_a, of_b, place.terms, memory, simd_row, simd_column, lane_at, sums);
    } else if (gemm_a_turned && gemm_b_turned) {
      plain_sum<true, true>(place, memory, simd_row, simd_column, lane_at, sums, thread_);
    } else if (gemm_a_turned) {
      plain_sum<true, false>(place, memory, simd_row, simd_column, lane_at, sums, thread_);
    } else if (gemm_b_turned) {
      plain_sum<false, true>(place, memory, simd_row, simd_column, lane_at, sums, thread_);
    } else {
      plain_sum<false, false>(place, memory, simd_row, simd_column, lane_at, sums, thread_);
    }
    // Through threadgroup memory, which has been read by then: see GemmBlock.
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    threadgroup float* const space = memory + int(simdgroup) * kSpace;
    GEMM_UNROLL
    for (int half_ = 0; half_ < 2; ++half_) {
      if (!kConv && gemm_b_turned) {
        put<true>(space, half_, lane_at, sums);
      } else {
        put<false>(space, half_, lane_at, sums);
      }
      gemm_put_barrier<1>();
      gemm_store_rows<kColumnTiles, 1, kConv>(space, out, params, place.out, epilogue,
                                              place.row + simd_row + 16 * half_,
                                              uint(place.column) + simd_column, lane);
      gemm_put_barrier<1>();
    }
  }
};

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_FLOATS_METAL_H_
