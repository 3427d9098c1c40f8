// Products of four simdgroups together, 16 rows each, by matrices in threadgroup memory: sums are those of
// simdgroup_rows.metal.h. Where the compiler says that the device's matrix unit reads that memory itself, it does, and
// multiplies while the simdgroups go on; elsewhere each simdgroup multiplies its rows.

#ifndef METAL_OPS_KERNELS_GEMM_WARPGROUP_TILES_METAL_H_
#define METAL_OPS_KERNELS_GEMM_WARPGROUP_TILES_METAL_H_

#include "kernels/gemm/simdgroup_tiles.metal.h"

// A matrix of two-byte elements as kLines lines of kLength, in panels of 64 elements, one behind the other.
template <int kLines, int kLength>
struct Panels {
  static constexpr constant int kLine = 64;   // elements from line to line of a panel
  static constexpr constant int kSpread = 8;  // lines after which places repeat
  static constexpr constant int kPanel = 64 * kLines;
  static constexpr constant int kElements = kPanel * ((kLength + 63) / 64);
  // The place of a line's element; eight from a multiple of eight on are neighbours.
  ROWS_INLINE static int place(int line, int along) {
#if defined(__HAVE_WARPGROUP_MATRIX__)
    const int piece = (along / 8 ^ line) % 8;
#else
    const int piece = along / 8 % 8;
#endif
    return along / 64 * kPanel + line * kLine + piece * 8 + along % 8;
  }
};

#if defined(__HAVE_WARPGROUP_MATRIX__)
ROWS_INLINE inline void begin_products() { _msl::begin_products(); }
ROWS_INLINE inline void end_products() { _msl::end_products(); }
template <int kBatches>
ROWS_INLINE inline void wait_for_products() {
  _msl::wait_for_products<kBatches>();
}
// Products that have ended, while later ones run.
template <typename Sums, int N>
ROWS_INLINE inline void read_products(thread Sums (&sums)[N]) {
  _msl::read_products(sums);
}
ROWS_INLINE inline void show_to_products() { _msl::show_to_products(); }
// Values that depend on it are computed in each iteration of a loop, whose sums need the registers.
ROWS_INLINE inline uint each_turn(uint number) { return _msl::here(number); }
#else
ROWS_INLINE inline void begin_products() {}
ROWS_INLINE inline void end_products() {}
template <int kBatches>
ROWS_INLINE inline void wait_for_products() {}
template <typename Sums, int N>
ROWS_INLINE inline void read_products(thread Sums (&)[N]) {}
ROWS_INLINE inline void show_to_products() {}
ROWS_INLINE inline uint each_turn(uint number) { return number; }
#endif

// kTerms terms of a times b. kRowLines: the rows of a are lines, of which there are kRows; kColumnLines: the columns of b
// are lines, of which there are kColumns. Else the terms are the lines. kEachTurn: places are reckoned in each turn of a
// loop, where sums need the registers.
template <typename T, int kRows, int kColumns, int kTerms, bool kRowLines, bool kColumnLines,
          bool kEachTurn = false>
struct WarpgroupProduct {
  using Ops = Rows<T>;
  using Sums16 = typename Ops::Sums16;
  using A = Panels<kRowLines ? kRows : kTerms, kRowLines ? kTerms : kRows>;
  using B = Panels<kColumnLines ? kColumns : kTerms, kColumnLines ? kTerms : kColumns>;

  // Where the terms from k on begin: of a's 64 rows from `row` on, of b.
  ROWS_INLINE static int a_at(int row, int k) {
    return kRowLines ? k / 64 * A::kPanel + row * 64 + k % 64 : row / 64 * A::kPanel + k * 64;
  }
  ROWS_INLINE static int b_at(int k) { return kColumnLines ? k / 64 * B::kPanel + k % 64 : k * 64; }

  // sums += those 64 rows, of which the simdgroup has the 16 from 16 * part on. kAdds: adds to the
  // old sums; else starts at zero.
  ROWS_INLINE static void run(threadgroup const T* a, int row, threadgroup const T* b, int part,
                              thread Sums16 (&sums)[kColumns / 8], bool adds, uint lane) {
#if defined(__HAVE_WARPGROUP_MATRIX__)
    const ulong left = begins(_msl::matrix_at(a + a_at(row, 0), 2 * A::kPanel));
    const ulong right = begins(_msl::matrix_at(b, 2 * B::kPanel));
    ROWS_UNROLL
    for (int k = 0; k < kTerms; k += 16) {
      _msl::multiply_64<T, !kRowLines, !kColumnLines>(
          sums,
          kEachTurn ? left + a_at(0, k) / 8 : _msl::matrix_at(a + a_at(row, k), 2 * A::kPanel),
          kEachTurn ? right + b_at(k) / 8 : _msl::matrix_at(b + b_at(k), 2 * B::kPanel),
          adds || k > 0);
    }
#else
    if (!adds) clear(sums);
    for (int k = 0; k < kTerms; k += 16) {
      typename Ops::Rows16 left;
      const int at = row + 16 * part;
      Tiles<T>::template load<!kRowLines>(
          left, a + (kRowLines ? a_at(at, k) : a_at(row, k) + at % 64), 64, lane);
      multiply(left, b, k, sums, lane);
    }
#endif
  }
  // The same of 16 rows in the simdgroup's registers.
  ROWS_INLINE static void run(thread const typename Ops::Rows16 (&rows)[kTerms / 16],
                              threadgroup const T* b, thread Sums16 (&sums)[kColumns / 8],
                              bool adds, uint lane) {
#if defined(__HAVE_WARPGROUP_MATRIX__)
    const ulong right = begins(_msl::matrix_at(b, 2 * B::kPanel));
    ROWS_UNROLL
    for (int k = 0; k < kTerms; k += 16) {
      _msl::multiply_64<T, !kColumnLines>(
          sums, rows[k / 16].part,
          kEachTurn ? right + b_at(k) / 8 : _msl::matrix_at(b + b_at(k), 2 * B::kPanel),
          adds || k > 0);
    }
#else
    if (!adds) clear(sums);
    ROWS_UNROLL
    for (int k = 0; k < kTerms; k += 16) multiply(rows[k / 16], b, k, sums, lane);
#endif
  }

 private:
#if defined(__HAVE_WARPGROUP_MATRIX__)
  ROWS_INLINE static ulong begins(ulong at) { return kEachTurn ? _msl::here(at) : at; }
#endif
  ROWS_INLINE static void clear(thread Sums16 (&sums)[kColumns / 8]) {
    ROWS_UNROLL
    for (int j = 0; j < kColumns / 8; ++j) Ops::clear(sums[j]);
  }
  ROWS_INLINE static void multiply(thread const typename Ops::Rows16& left, threadgroup const T* b,
                                   int k, thread Sums16 (&sums)[kColumns / 8], uint lane) {
    ROWS_UNROLL
    for (int j = 0; j < kColumns / 8; j += 2) {
      typename Ops::Right16 first, second;
      Tiles<T>::template load<kColumnLines>(
          first, second,
          b + (kColumnLines ? b_at(k) + 512 * j : j / 8 * B::kPanel + k * 64 + j % 8 * 8), 64,
          lane);
      Ops::multiply(sums[j], left, first);
      Ops::multiply(sums[j + 1], left, second);
    }
  }
};

#endif  // METAL_OPS_KERNELS_GEMM_WARPGROUP_TILES_METAL_H_
