// Tiles of matrices on their way into threadgroup memory, by copies that run by themselves where the
// device has them.

#ifndef METAL_OPS_KERNELS_GEMM_TILE_COPIES_METAL_H_
#define METAL_OPS_KERNELS_GEMM_TILE_COPIES_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/gemm_blocks_params.h"
#include "kernels/gemm/simdgroup_rows.metal.h"

#if defined(__HAVE_THREADGROUP_COPY_ASYNC__)
template <int kBatches>
ROWS_INLINE inline void gemm_wait_for_copies() {
  _msl::wait_for_copies<kBatches>();
}
ROWS_INLINE inline void gemm_end_copies() { _msl::end_copies(); }
ROWS_INLINE inline void gemm_copy_16(threadgroup void* to, device const void* from, bool inside) {
  _msl::copy_16(to, from, inside ? 16 : 0);
}
#else
template <int kBatches>
ROWS_INLINE inline void gemm_wait_for_copies() {}
ROWS_INLINE inline void gemm_end_copies() {}
ROWS_INLINE inline void gemm_copy_16(threadgroup void* to, device const void* from, bool inside) {
  *(threadgroup uint4*)to = inside ? *(device const uint4*)from : uint4(0);
}
#endif

// One factor, as lines in memory: `across` of them, of `along` elements each, `line` apart. The terms
// go along the lines, or across them.
template <typename T>
struct GemmLinesOf {
  device const T* at;
  long line;
  long across, along;
  bool wide;  // lines and their ends lie at multiples of 16 bytes
};

// Where elements of a tile lie: lines one after the other.
template <int kLength, int kBytes>
struct GemmTileLines {
  static constexpr constant int kLine = GEMM_BLOCK_LINE(kLength, kBytes);
  ROWS_INLINE static int place(int line, int along) { return line * kLine + along; }
};

// Brings tiles of kLines lines of kLength elements, one after the other, with zeros where there is
// nothing. A thread has 16 bytes of every so manieth line; those lie equally far apart.
template <int kLines, int kLength, int kThreads, bool kAcross, typename T,
          typename Places = GemmTileLines<kLength, int(sizeof(T))>>
struct GemmTileCopy {
  static constexpr constant int kWide = 16 / int(sizeof(T)), kLine = Places::kLine;
  static constexpr constant int kOfLine = kLength / kWide, kStep = kThreads / kOfLine;
  static_assert(kThreads % kOfLine == 0 && kLines % kStep == 0, "each thread has as many");
  // Terms of a tile go across the lines or along them.
  static constexpr constant int kTerms = kAcross ? kLines : kLength;

  device const T* at;  // the thread's first
  long line, step;     // elements from line to line, and to the thread's next one
  int across, along;   // lines and elements that are left from the tile on
  int place;           // of the thread's first in the tile
  int thread_;
  bool wide;

  ROWS_INLINE GemmTileCopy(GemmLinesOf<T> from, long first_across, long first_along,
                           uint thread_at) {
    const int l = int(thread_at) / kOfLine, c = int(thread_at) % kOfLine * kWide;
    line = from.line;
    step = from.line * kStep;
    at = from.at + first_across * line + first_along;
    if (from.wide) at += l * line + c;
    across = int(metal::min(from.across - first_across, 0x7fffffffl));
    along = int(metal::min(from.along - first_along, 0x7fffffffl));
    place = Places::place(l, c);
    thread_ = int(thread_at);
    wide = from.wide;
  }
  ROWS_INLINE void next(threadgroup T* to) thread {
    if (wide && across >= kLines && along >= kLength) {
      device const T* from = at;
      ROWS_UNROLL
      for (int i = 0; i < kLines / kStep; ++i, from += step) {
        gemm_copy_16(to + place + i * kStep * kLine, from, true);
      }
    } else if (wide) {
      const int l = thread_ / kOfLine, c = thread_ % kOfLine * kWide;
#pragma clang loop unroll(disable)
      for (int i = 0; i < kLines / kStep; ++i) {
        const bool inside = l + i * kStep < across && c < along;
        gemm_copy_16(to + place + i * kStep * kLine, inside ? at + i * step : at - l * line - c,
                     inside);
      }
    } else {
#pragma clang loop unroll(disable)
      for (int i = thread_; i < kLines * kLength; i += kThreads) {
        const int l = i / kLength, c = i % kLength;
        T value = T(0.0f);
        if (l < across && c < along) value = at[l * line + c];
        to[Places::place(l, c)] = value;
      }
    }
    at += kAcross ? kLines * line : long(kLength);
    if (kAcross) {
      across -= kTerms;
    } else {
      along -= kTerms;
    }
  }
};

#endif  // METAL_OPS_KERNELS_GEMM_TILE_COPIES_METAL_H_
