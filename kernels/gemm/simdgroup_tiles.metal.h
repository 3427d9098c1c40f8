// Operands of simdgroup_rows.metal.h from tiles in threadgroup memory, where line after line lies
// `line` elements further. Turned: the lines are the operand's columns.

#ifndef METAL_OPS_KERNELS_GEMM_SIMDGROUP_TILES_METAL_H_
#define METAL_OPS_KERNELS_GEMM_SIMDGROUP_TILES_METAL_H_

#include "kernels/gemm/simdgroup_rows.metal.h"

template <typename T, bool kUnit>
struct TileOps {
  using Ops = RowsOps<T, kUnit>;
  using Rows16 = typename Ops::Rows16;
  using Right16 = typename Ops::Right16;

  template <bool kTurned>
  ROWS_INLINE static void load(thread Rows16& rows, threadgroup const T* at, int line, uint) {
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      ROWS_UNROLL
      for (int j = 0; j < 2; ++j) {
        if (kTurned) {
          metal::simdgroup_load(rows.part[i][j], at + 8 * j * line + 8 * i, ulong(line),
                                ulong2(0, 0), true);
        } else {
          metal::simdgroup_load(rows.part[i][j], at + 8 * i * line + 8 * j, ulong(line));
        }
      }
    }
  }
  // Two side by side.
  template <bool kTurned>
  ROWS_INLINE static void load(thread Right16& left, thread Right16& right, threadgroup const T* at,
                               int line, uint) {
    ROWS_UNROLL
    for (int j = 0; j < 2; ++j) {
      if (kTurned) {
        metal::simdgroup_load(left.part[j], at + 8 * j, ulong(line), ulong2(0, 0), true);
        metal::simdgroup_load(right.part[j], at + 8 * line + 8 * j, ulong(line), ulong2(0, 0),
                              true);
      } else {
        metal::simdgroup_load(left.part[j], at + 8 * j * line, ulong(line));
        metal::simdgroup_load(right.part[j], at + 8 * j * line + 8, ulong(line));
      }
    }
  }
  // Sums side by side, to lines in threadgroup memory.
  template <int N>
  ROWS_INLINE static void put(thread const typename Ops::Sums16 (&sums)[N], threadgroup float* to,
                              int line, uint) {
    ROWS_UNROLL
    for (int j = 0; j < N; ++j) {
      metal::simdgroup_store(sums[j].part[0], to + 8 * j, ulong(line));
      metal::simdgroup_store(sums[j].part[1], to + 8 * line + 8 * j, ulong(line));
    }
  }
};

#if defined(__HAVE_SIMDGROUP_MATRIX_16__)
// A lane names a row of 16 bytes: lines lie at multiples of that.
template <typename T>
struct TileOps<T, true> {
  using Ops = RowsOps<T, true>;
  using Rows16 = typename Ops::Rows16;
  using Right16 = typename Ops::Right16;

  template <bool kTurned>
  ROWS_INLINE static void load(thread Rows16& rows, threadgroup const T* at, int line, uint lane) {
    if (kTurned) {
      _msl::load_transposed_8(rows.part,
                              at + int(lane % 8 + lane / 16 * 8) * line + lane / 8 % 2 * 8);
    } else {
      _msl::load_8(rows.part, at + int(lane % 16) * line + lane / 16 * 8);
    }
  }
  template <bool kTurned>
  ROWS_INLINE static void load(thread Right16& left, thread Right16& right, threadgroup const T* at,
                               int line, uint lane) {
    uint parts[4];
    if (kTurned) {
      _msl::load_8(parts, at + int(lane % 8 + lane / 16 * 8) * line + lane / 8 % 2 * 8);
    } else {
      _msl::load_transposed_8(parts, at + int(lane % 16) * line + lane / 16 * 8);
    }
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) left.part[i] = parts[i], right.part[i] = parts[2 + i];
  }
  template <int N>
  ROWS_INLINE static void put(thread const typename Ops::Sums16 (&sums)[N], threadgroup float* to,
                              int line, uint lane) {
    ROWS_UNROLL
    for (int j = 0; j < N; ++j) {
      threadgroup float* const at = to + int(lane / 4) * line + 8 * j + lane % 4 * 2;
      *(threadgroup float2*)at = float2(sums[j].part[0], sums[j].part[1]);
      *(threadgroup float2*)(at + 8 * line) = float2(sums[j].part[2], sums[j].part[3]);
    }
  }
};
template <typename T>
using Tiles = TileOps<T, sizeof(T) == 2>;
#else
template <typename T>
using Tiles = TileOps<T, false>;
#endif

#endif  // METAL_OPS_KERNELS_GEMM_SIMDGROUP_TILES_METAL_H_
