// The work of a simdgroup in attention: it has 16 queries, or keys for their gradients, as rows
// whose sums stay in its registers, and goes over the others, its columns, as operands of the matrix
// unit.

#ifndef METAL_OPS_KERNELS_ATTENTION_ATTENTION_GROUPS_METAL_H_
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_GROUPS_METAL_H_

#include "kernels/attention/attention.metal.h"
#include "kernels/gemm/simdgroup_rows.metal.h"

constexpr constant int kRows = ATTENTION_GROUP_ROWS;
// Columns at a time, and blocks of eight of them.
constexpr constant int kColumns = 32, kColumnBlocks = kColumns / 8;
constexpr constant uint kSimdgroups = ATTENTION_GROUP_THREADS / 32;

// Where the weights are rounded to 16 bits, two digits less of an exponential are not seen.
ROWS_INLINE inline float attention_exp2(float x) {
#if defined(__HAVE_SIMDGROUP_MATRIX_16__)
  return _msl::exp2_16(x);
#else
  return fast::exp2(x);
#endif
}
template <typename T>
ROWS_INLINE inline float attention_exp(float x) {
  return sizeof(T) == 2 ? attention_exp2(x * 1.44269504f) : precise_exp(x);
}

// Heads of at most kSize elements.
template <typename T, int kSize>
struct AttentionGroup {
  using Ops = Rows<T>;
  using Rows16 = typename Ops::Rows16;
  using Right16 = typename Ops::Right16;
  using Sums16 = typename Ops::Sums16;
  static constexpr constant int kLeft = kSize / 16, kSums = kSize / 8;
  // A lane's part of the rows' scores.
  static constexpr constant int kLaneRows = Ops::kLaneRows;
  static constexpr constant int kOfRow = kRows * kColumns / 32 / kLaneRows;

  threadgroup float* space;
  uint lane;

  ROWS_INLINE int row(int r) thread const { return Ops::row(r, lane); }
  ROWS_INLINE int column(int j) thread const {
    return Ops::template column<kColumnBlocks>(j, lane);
  }

  // Loads rows of `size` elements each.
  ROWS_INLINE void load(device const T* from, int n, uint size, thread Rows16 (&to)[kLeft]) thread {
    ROWS_UNROLL
    for (int i = 0; i < kLeft; ++i) {
      Ops::load(to[i], Piece<const T>{from + 16 * i, long(size), n, int(size) - 16 * i}, space,
                lane);
    }
  }
  template <int N>
  ROWS_INLINE void clear(thread Sums16 (&sums)[N]) thread const {
    ROWS_UNROLL
    for (int i = 0; i < N; ++i) Ops::clear(sums[i]);
  }

  // values = rows times n columns, which lie as rows of `from`.
  template <bool kWhole>
  ROWS_INLINE void multiply(thread const Rows16 (&rows)[kLeft], device const T* from, int n,
                            uint size, thread float (&values)[kLaneRows][kOfRow]) thread {
    Sums16 sums[kColumnBlocks];
    clear(sums);
    ROWS_UNROLL
    for (int i = 0; i < kLeft; ++i) {
      if (!kWhole && 16 * i >= int(size)) break;
      ROWS_UNROLL
      for (int m = 0; m < kColumnBlocks; ++m) {
        Right16 right;
        Ops::template load_transposed<kWhole>(
            right,
            Piece<const T>{from + 8 * m * size + 16 * i, long(size), n - 8 * m, int(size) - 16 * i},
            space, lane);
        Ops::multiply(sums[m], rows[i], right);
      }
    }
    Ops::read(sums, values, space, lane);
  }
  // sums += values, rounded, times those n rows of `from`.
  template <bool kWhole>
  ROWS_INLINE void add(thread const float (&values)[kLaneRows][kOfRow], device const T* from, int n,
                       uint size, thread Sums16 (&sums)[kSums]) thread {
    Rows16 rows[kColumnBlocks / 2];
    Ops::write(values, rows, space, lane);
    ROWS_UNROLL
    for (int j = 0; j < kColumnBlocks / 2; ++j) {
      ROWS_UNROLL
      for (int i = 0; i < kSums; ++i) {
        if (!kWhole && 8 * i >= int(size)) break;
        Right16 right;
        Ops::template load<kWhole>(
            right,
            Piece<const T>{from + 16 * j * size + 8 * i, long(size), n - 16 * j, int(size) - 8 * i},
            space, lane);
        Ops::multiply(sums[i], rows[j], right);
      }
    }
  }
  ROWS_INLINE void scale(thread Sums16 (&sums)[kSums],
                         thread const float (&factors)[kLaneRows]) thread {
    Ops::scale(sums, factors, space, lane);
  }
  ROWS_INLINE void store(thread const Sums16 (&sums)[kSums], device T* to, int n,
                         uint size) thread {
    ROWS_UNROLL
    for (int i = 0; i < kSums; ++i) {
      if (8 * i >= int(size)) break;
      Ops::store(sums[i], Piece<T>{to + 8 * i, long(size), n, int(size) - 8 * i}, space, lane);
    }
  }
  // As float32.
  ROWS_INLINE void store_wide(thread const Sums16 (&sums)[kSums], device float* to, int n,
                              uint size) thread {
    ROWS_UNROLL
    for (int i = 0; i < kSums; ++i) {
      if (8 * i >= int(size)) break;
      Ops::add(sums[i], Piece<float>{to + 8 * i, long(size), n, int(size) - 8 * i}, false, space,
               lane);
    }
  }
};

// Whether rows of both sizes fill a group's registers and may be read by pairs.
template <typename T, int kSize>
ROWS_INLINE inline bool attention_fills(constant AttentionParams& params, device const T* a,
                                        device const T* b) {
  return params.size == kSize && params.value_size == kSize && Rows<T>::is_even(a, kSize) &&
         Rows<T>::is_even(b, kSize);
}

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_GROUPS_METAL_H_
