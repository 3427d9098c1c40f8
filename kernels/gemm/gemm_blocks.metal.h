// Products of matrices of two-byte elements in blocks, where simdgroups multiply: tiles of a and b
// come into threadgroup memory, a few steps ahead of the simdgroups that multiply them, each a part of
// the block. Sums are float32 and stay in registers. For plain products, in either order of a and b.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_BLOCKS_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_BLOCKS_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/gemm.metal.h"
#include "kernels/gemm/gemm_blocks_params.h"
#include "kernels/gemm/simdgroup_tiles.metal.h"
#include "kernels/gemm/tile_copies.metal.h"
#include "kernels/msl/wide_access.h"

using namespace metal;

// As ROWS_UNROLL, of any type: arrays that such a loop indexes lie in registers.
#if defined(__METAL_CPU__)
#define GEMM_UNROLL
#else
#define GEMM_UNROLL _Pragma("clang loop unroll(full)")
#endif

// Whether the rows of a, and the columns of b, are neighbours, not the terms of a and the columns.
constant bool gemm_a_turned [[function_constant(4)]];
constant bool gemm_b_turned [[function_constant(5)]];

// A threadgroup's part of a product: blocks down a band first, then the band's next columns.
template <typename T>
struct GemmPlace {
  GemmLinesOf<T> a, b;
  long row, column, terms, out;

  ROWS_INLINE GemmPlace(device const T* a_at, device const T* b_at, constant GemmParams& params,
                        uint3 group, int rows, int columns) {
    const GemmOffsets offsets = gemm_offsets(params, group.z);
    const uint down = uint((params.rows + rows - 1) / rows);
    const uint across = (params.columns + columns - 1) / columns;
    const uint band = group.x / (GEMM_BLOCKS_BAND * across) * GEMM_BLOCKS_BAND;
    const uint in_band = group.x - band * across,
               height = metal::min(down - band, uint(GEMM_BLOCKS_BAND));
    row = long(band + in_band % height) * rows;
    column = long(in_band / height) * columns;
    out = offsets.out;
    terms = params.part_terms != 0 ? long(params.part_terms)
                                   : long(params.filter_h * params.filter_w) * long(params.depth);
    if (params.split_terms != 0) {
      terms = metal::min(terms, long(params.split_terms) - long(group.z) * terms);
    }
    a = {a_at + offsets.a, gemm_a_turned ? params.a_c : params.a_x,
         gemm_a_turned ? terms : params.rows, gemm_a_turned ? params.rows : terms, false};
    b = {b_at + offsets.b, gemm_b_turned ? params.b_column : params.b_row,
         gemm_b_turned ? long(params.columns) : terms, gemm_b_turned ? terms : long(params.columns),
         false};
    a.wide = is_wide_lines(a);
    b.wide = is_wide_lines(b);
  }
  ROWS_INLINE static bool is_wide_lines(GemmLinesOf<T> of) {
    return ((reinterpret_cast<ulong>(of.at) & 15) |
            ulong((of.line | of.along) % (16 / sizeof(T)))) == 0;
  }
};

// How a block's tiles of a plain product come.
template <typename T, int kRows, int kDepth, int kThreads, bool kTurned>
using GemmCopyA =
    GemmTileCopy<kTurned ? kDepth : kRows, kTurned ? kRows : kDepth, kThreads, kTurned, T>;
template <typename T, int kColumns, int kDepth, int kThreads, bool kTurned>
using GemmCopyB =
    GemmTileCopy<kTurned ? kColumns : kDepth, kTurned ? kDepth : kColumns, kThreads, !kTurned, T>;

// And of a convolution, whose terms are channels of a point of the filter, then those of the next. Pieces
// of 16 bytes are of one point: channels are as many times so much.
template <int kLines, int kLength, int kThreads, typename T>
struct GemmConvCopy {
  static constexpr constant int kWide = 16 / int(sizeof(T)),
                                kLine = GEMM_BLOCK_LINE(kLength, int(sizeof(T)));
  static constexpr constant int kOfLine = kLength / kWide, kStep = kThreads / kOfLine;
  static constexpr constant int kMine = kLines / kStep;
  static_assert(kThreads % kOfLine == 0 && kLines % kStep == 0, "each thread has as many");

  device const T* at;
  constant GemmParams& params;
  // Per line of the thread: where the image begins, and the window in it, its top in the upper
  // half.
  long image[kMine];
  int window[kMine];
  uint term, terms;
  int place;
  bool wide;

  ROWS_INLINE GemmConvCopy(device const T* a, constant GemmParams& of, uint part,
                           const GemmPlace<T> block, uint thread_)
      : at(a), params(of) {
    const int l = int(thread_) / kOfLine, c = int(thread_) % kOfLine * kWide;
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const long row = block.row + l + i * kStep;
      const GemmRow found = gemm_row(of, metal::min(row, of.rows - 1));
      image[i] = row < of.rows ? found.image : -1;
      window[i] = int(uint(found.top) << 16 | (uint(found.left) & 0xffff));
    }
    term = part * of.part_terms + uint(c);
    terms = part * of.part_terms + uint(block.terms);
    place = l * kLine + c;
    wide = (reinterpret_cast<ulong>(a) & 15) == 0;
  }
  ROWS_INLINE void next(threadgroup T* to) thread {
    const uint point = term / params.depth, c = term - point * params.depth;
    const uint down = point / params.filter_w, across = point - down * params.filter_w;
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const int y = (window[i] >> 16) + int(down * params.dilation_h);
      const int x = int(short(window[i] & 0xffff)) + int(across * params.dilation_w);
      const bool inside = image[i] >= 0 && term < terms && y >= 0 && y < int(params.in_h) &&
                          x >= 0 && x < int(params.in_w);
      device const T* const from =
          inside ? at + image[i] + long(y) * params.a_y + long(x) * params.a_x + long(c) : at;
      threadgroup T* const piece = to + place + i * kStep * kLine;
      if (wide) {
        gemm_copy_16(piece, from, inside);
      } else {
#pragma clang loop unroll(disable)
        for (int j = 0; j < kWide; ++j) {
          T value = T(0.0f);
          if (inside) value = from[j];
          piece[j] = value;
        }
      }
    }
    term += kLength;
  }
};

// Between simdgroups that share sums, or within one.
template <int kShares>
ROWS_INLINE inline void gemm_put_barrier() {
  if (kShares == 1) {
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  } else {
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
}

// Stores 16 rows of sums out of threadgroup memory, two neighbours a lane of the kShares simdgroups that
// have parts of them there.
template <int kColumnTiles, int kShares, bool kConv = false, typename Out, typename Epilogue>
ROWS_INLINE inline void gemm_store_rows(threadgroup const float* space, device Out* out,
                                        constant GemmParams& params, long offset, Epilogue epilogue,
                                        long row, uint column, uint lane) {
  constexpr int kSpaceLine = 8 * kColumnTiles + 4, kSpace = 16 * kSpaceLine;
  const bool pairs = is_wide((device const Out*)out + offset) && params.out_point % 2 == 0 &&
                     (!kConv || params.out_image % 2 == 0);
  const int rows = int(metal::min(params.rows - row, 16l));
#pragma clang loop unroll(disable)
  for (int i = int(lane); i < rows * 4 * kColumnTiles; i += 32 * kShares) {
    const int r = i / (4 * kColumnTiles), c = i % (4 * kColumnTiles) * 2;
    const uint first = column + c;
    if (first >= params.columns) continue;
    float2 sum = float2(0.0f);
    for (int share = 0; share < kShares; ++share) {
      sum += *(threadgroup const float2*)(space + share * kSpace + r * kSpaceLine + c);
    }
    const long at = offset + long(first) +
                    (kConv ? gemm_row(params, row + r).out : (row + r) * params.out_point);
    const Out one = Out(epilogue(sum.x, epilogue.column(first), at));
    if (first + 1 == params.columns) {
      out[at] = one;
      continue;
    }
    const Out other = Out(epilogue(sum.y, epilogue.column(first + 1), at + 1));
    if (pairs) {
      *(device metal::vec<Out, 2>*)(out + at) = metal::vec<Out, 2>(one, other);
    } else {
      out[at] = one;
      out[at + 1] = other;
    }
  }
}

// kRowTiles of 16 rows and kColumnTiles of 8 columns per simdgroup; kShares of them share the terms of
// each step, where blocks are too few or too narrow for as many simdgroups.
template <typename T, int kRows, int kColumns, int kDepth, int kRowTiles, int kColumnTiles,
          int kStages, int kShares>
struct GemmBlock {
  static constexpr constant int kDown = kRows / 16 / kRowTiles;         // simdgroups
  static constexpr constant int kAcross = kColumns / 8 / kColumnTiles;  // beside each other
  static constexpr constant int kThreads = 32 * kDown * kAcross * kShares;
  static constexpr constant int kBytes = int(sizeof(T));
  static constexpr constant int kTileA = GEMM_BLOCK_TILE(kRows, kDepth, kBytes);
  static constexpr constant int kTileB = GEMM_BLOCK_TILE(kColumns, kDepth, kBytes);
  using Ops = Rows<T>;

  // The share's terms from kBegin to kEnd.
  template <bool kTurnedA, bool kTurnedB, int kBegin, int kEnd>
  ROWS_INLINE static void multiply(threadgroup const T* a_tile, threadgroup const T* b_tile,
                                   int row, int column, int first,
                                   thread typename Ops::Sums16 (&sums)[kRowTiles][kColumnTiles],
                                   uint lane) {
    constexpr int kLineA = GEMM_BLOCK_LINE(kTurnedA ? kRows : kDepth, kBytes);
    constexpr int kLineB = GEMM_BLOCK_LINE(kTurnedB ? kDepth : kColumns, kBytes);
    ROWS_UNROLL
    for (int of_share = kBegin; of_share < kEnd; of_share += 16) {
      const int k = first + of_share;
      typename Ops::Rows16 left[kRowTiles];
      typename Ops::Right16 right[kColumnTiles];
      ROWS_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        const int at = row + 16 * i;
        Tiles<T>::template load<kTurnedA>(
            left[i], a_tile + (kTurnedA ? k * kLineA + at : at * kLineA + k), kLineA, lane);
      }
      ROWS_UNROLL
      for (int j = 0; j < kColumnTiles; j += 2) {
        const int at = column + 8 * j;
        Tiles<T>::template load<kTurnedB>(right[j], right[j + 1],
                                          b_tile + (kTurnedB ? at * kLineB + k : k * kLineB + at),
                                          kLineB, lane);
      }
      ROWS_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        ROWS_UNROLL
        for (int j = 0; j < kColumnTiles; ++j) Ops::multiply(sums[i][j], left[i], right[j]);
      }
    }
  }

  // A tile of each factor at a time, as `of_a` and `of_b` bring them.
  template <bool kTurnedA, bool kTurnedB, typename CopyA, typename CopyB>
  ROWS_INLINE static void sum(CopyA of_a, CopyB of_b, long terms, threadgroup T* memory,
                              int simd_row, int simd_column, int first,
                              thread typename Ops::Sums16 (&sums)[kRowTiles][kColumnTiles],
                              uint lane) {
    threadgroup T* const b_memory = memory + kStages * kTileA;
    const int steps = int((terms + kDepth - 1) / kDepth);
    ROWS_UNROLL
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
      // Products are begun before the copies.
      threadgroup const T *const a_tile = memory + stage * kTileA, *const b_tile =
                                                                       b_memory + stage * kTileB;
      multiply<kTurnedA, kTurnedB, 0, 16>(a_tile, b_tile, simd_row, simd_column, first, sums, lane);
      if (step + kStages - 1 < steps) {
        of_a.next(memory + next * kTileA);
        of_b.next(b_memory + next * kTileB);
      }
      gemm_end_copies();
      multiply<kTurnedA, kTurnedB, 16, kDepth / kShares>(a_tile, b_tile, simd_row, simd_column,
                                                         first, sums, lane);
      if (++stage == kStages) stage = 0;
      if (++next == kStages) next = 0;
    }
  }

  template <bool kTurnedA, bool kTurnedB>
  ROWS_INLINE static void plain_sum(const GemmPlace<T> place, threadgroup T* memory, int simd_row,
                                    int simd_column, int first,
                                    thread typename Ops::Sums16 (&sums)[kRowTiles][kColumnTiles],
                                    uint thread_, uint lane) {
    GemmCopyA<T, kRows, kDepth, kThreads, kTurnedA> of_a(place.a, kTurnedA ? 0 : place.row,
                                                         kTurnedA ? place.row : 0, thread_);
    GemmCopyB<T, kColumns, kDepth, kThreads, kTurnedB> of_b(place.b, kTurnedB ? place.column : 0,
                                                            kTurnedB ? 0 : place.column, thread_);
    sum<kTurnedA, kTurnedB>(of_a, of_b, place.terms, memory, simd_row, simd_column, first, sums,
                            lane);
  }

  // kConv: a convolution, which the caller has checked: see gemm_block_kernels.metal.h.
  template <bool kConv = false, typename Out, typename Epilogue>
  ROWS_INLINE static void run(device const T* a, device const T* b, device Out* out,
                              constant GemmParams& params, Epilogue epilogue, threadgroup T* memory,
                              uint3 group, uint thread_, uint simdgroup, uint lane) {
    const GemmPlace<T> place(a, b, params, group, kRows, kColumns);
    const long row = place.row, column = place.column;
    typename Ops::Sums16 sums[kRowTiles][kColumnTiles];
    ROWS_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      ROWS_UNROLL
      for (int j = 0; j < kColumnTiles; ++j) Ops::clear(sums[i][j]);
    }
    const int share = int(simdgroup) / (kDown * kAcross);
    const int simd_row = int(simdgroup) / kAcross % kDown * kRowTiles * 16;
    const int simd_column = int(simdgroup) % kAcross * kColumnTiles * 8;
    const int first = share * (kDepth / kShares);
    if (kConv) {
      GemmConvCopy<kRows, kDepth, kThreads, T> of_a(a, params, group.z, place, thread_);
      GemmCopyB<T, kColumns, kDepth, kThreads, false> of_b(place.b, 0, column, thread_);
      sum<false, false>(of_a, of_b, place.terms, memory, simd_row, simd_column, first, sums, lane);
    } else if (gemm_a_turned && gemm_b_turned) {
      plain_sum<true, true>(place, memory, simd_row, simd_column, first, sums, thread_, lane);
    } else if (gemm_a_turned) {
      plain_sum<true, false>(place, memory, simd_row, simd_column, first, sums, thread_, lane);
    } else if (gemm_b_turned) {
      plain_sum<false, true>(place, memory, simd_row, simd_column, first, sums, thread_, lane);
    } else {
      plain_sum<false, false>(place, memory, simd_row, simd_column, first, sums, thread_, lane);
    }

    // Through threadgroup memory, which has been read by then: lanes store neighbours, and operands
    // of the epilogue are there once, not for each element of a lane.
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    threadgroup float* const space =
        (threadgroup float*)memory + int(simdgroup) % (kDown * kAcross) * kShares * kSpace;
    ROWS_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      Tiles<T>::put(sums[i], space + share * kSpace, kSpaceLine, lane);
      gemm_put_barrier<kShares>();
      gemm_store_rows<kColumnTiles, kShares, kConv>(
          space, out, params, place.out, epilogue, row + simd_row + 16 * i,
          uint(column) + simd_column, uint(share) * 32 + lane);
      gemm_put_barrier<kShares>();
    }
  }

  static constexpr constant int kSpaceLine = 8 * kColumnTiles + 4, kSpace = 16 * kSpaceLine;
};

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_BLOCKS_METAL_H_
