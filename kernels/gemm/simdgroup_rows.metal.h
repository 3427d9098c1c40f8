// 16 rows of a matrix in a simdgroup's registers, times matrices: the pieces of networks whose
// values stay there from layer to layer.
//
// Three kinds of pieces: 16x16 left operands (Rows16), 16x8 right ones (Right16), and 16x8 sums in
// float32 (Sums16), two of which become a left operand without leaving the registers. They are made
// of simdgroup matrices, of whose lanes nothing is assumed but that all types are spread alike; or,
// where the compiler says that the device multiplies 16 rows at once, of its own layout.

#ifndef METAL_OPS_KERNELS_GEMM_SIMDGROUP_ROWS_METAL_H_
#define METAL_OPS_KERNELS_GEMM_SIMDGROUP_ROWS_METAL_H_

#include <metal_stdlib>

// Elements of threadgroup memory that a simdgroup needs, for pieces at a matrix's edge.
#define ROWS16_STAGE 256
// Elements of 16 rows and columns.
#define ROWS16_BLOCK 256

// Loops over pieces, which have to be numbers for the pieces to be registers. A processor has too
// few. Where 16 rows are multiplied at once, that is for 2-byte types only: of 8x8 matrices, which
// are shuffles there, assembling one unrolled kernel takes minutes.
#if defined(__METAL_CPU__)
#define ROWS_UNROLL
#define ROWS_INLINE
#elif defined(__HAVE_SIMDGROUP_MATRIX_16__)
#define ROWS_INLINE __attribute__((always_inline))
#define ROWS_UNROLL _Pragma("clang loop unroll_count(sizeof(T) == 2 ? 64 : 1)")
#else
#define ROWS_INLINE __attribute__((always_inline))
#define ROWS_UNROLL _Pragma("clang loop unroll(full)")
#endif

// Where a piece lies: row after row, with so many rows and columns left.
template <typename T>
struct Piece {
  device T* at;
  long line;
  int rows, columns;
};

// ---- of simdgroup matrices
// --------------------------------------------------------------------------------------------

template <typename T>
using Matrix8 = metal::simdgroup_matrix<T, 8, 8>;

template <typename T, bool kUnit>
struct RowsOps {
  struct Rows16 {
    Matrix8<T> part[2][2];
  };
  struct Right16 {
    Matrix8<T> part[2];
  };
  struct Sums16 {
    Matrix8<float> part[2];
  };

  // Where element (k, n) of a packed right operand lies.
  ROWS_INLINE static uint position(uint k, uint n) { return k * 8 + n; }
  ROWS_INLINE static void load(thread Right16& right, device const T* packed, uint block, uint) {
    metal::simdgroup_load(right.part[0], packed + block * 128, 8);
    metal::simdgroup_load(right.part[1], packed + block * 128 + 64, 8);
  }

  // Copies a piece to threadgroup memory with zeros outside.
  template <typename S>
  ROWS_INLINE static void stage(Piece<const S> from, int columns, threadgroup S* to, uint lane) {
    for (int i = int(lane); i < 16 * columns; i += 32) {
      const int row = i / columns, column = i % columns;
      const bool there = row < from.rows && column < from.columns;
      to[i] = S(there ? float(from.at[row * from.line + column]) : 0.0f);
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  ROWS_INLINE static void load(thread Rows16& rows, Piece<const T> from, threadgroup float* space,
                               uint lane) {
    if (from.rows >= 16 && from.columns >= 16) {
      ROWS_UNROLL
      for (int i = 0; i < 2; ++i) {
        ROWS_UNROLL
        for (int j = 0; j < 2; ++j) {
          metal::simdgroup_load(rows.part[i][j], from.at + 8 * i * from.line + 8 * j, from.line);
        }
      }
      return;
    }
    threadgroup T* const staged = (threadgroup T*)space;
    stage(from, 16, staged, lane);
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      ROWS_UNROLL
      for (int j = 0; j < 2; ++j) {
        metal::simdgroup_load(rows.part[i][j], staged + 128 * i + 8 * j, 16);
      }
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  // The piece's columns are the operand's rows.
  ROWS_INLINE static void load_transposed(thread Rows16& rows, Piece<const T> from,
                                          threadgroup float* space, uint lane) {
    if (from.rows >= 16 && from.columns >= 16) {
      ROWS_UNROLL
      for (int i = 0; i < 2; ++i) {
        ROWS_UNROLL
        for (int j = 0; j < 2; ++j) {
          metal::simdgroup_load(rows.part[i][j], from.at + 8 * j * from.line + 8 * i, from.line,
                                ulong2(0, 0), true);
        }
      }
      return;
    }
    threadgroup T* const staged = (threadgroup T*)space;
    stage(from, 16, staged, lane);
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      ROWS_UNROLL
      for (int j = 0; j < 2; ++j) {
        metal::simdgroup_load(rows.part[i][j], staged + 128 * j + 8 * i, 16, ulong2(0, 0), true);
      }
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  template <bool kWhole = false>
  ROWS_INLINE static void load(thread Right16& right, Piece<const T> from, threadgroup float* space,
                               uint lane) {
    if (kWhole || (from.rows >= 16 && from.columns >= 8)) {
      metal::simdgroup_load(right.part[0], from.at, from.line);
      metal::simdgroup_load(right.part[1], from.at + 8 * from.line, from.line);
      return;
    }
    threadgroup T* const staged = (threadgroup T*)space;
    stage(from, 8, staged, lane);
    metal::simdgroup_load(right.part[0], staged, 8);
    metal::simdgroup_load(right.part[1], staged + 64, 8);
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }

  ROWS_INLINE static bool is_even(device const T*, long) { return true; }
  // The piece's 8 rows are the operand's columns. kWhole: the caller knows that all of it is there,
  // and even where pairs are read; nothing then keeps loads from being begun together.
  template <bool kWhole = false>
  ROWS_INLINE static void load_transposed(thread Right16& right, Piece<const T> from,
                                          threadgroup float* space, uint lane) {
    if (kWhole || (from.rows >= 8 && from.columns >= 16)) {
      metal::simdgroup_load(right.part[0], from.at, from.line, ulong2(0, 0), true);
      metal::simdgroup_load(right.part[1], from.at + 8, from.line, ulong2(0, 0), true);
      return;
    }
    from.rows = metal::min(from.rows, 8);
    threadgroup T* const staged = (threadgroup T*)space;
    stage(from, 16, staged, lane);
    metal::simdgroup_load(right.part[0], staged, 16, ulong2(0, 0), true);
    metal::simdgroup_load(right.part[1], staged + 8, 16, ulong2(0, 0), true);
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }

  ROWS_INLINE static void fill(thread Sums16& sums, device const float* columns, uint) {
    metal::simdgroup_load(sums.part[0], columns, 0);
    sums.part[1] = sums.part[0];
  }
  ROWS_INLINE static void clear(thread Sums16& sums) {
    sums.part[0] = sums.part[1] = metal::make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  ROWS_INLINE static void multiply(thread Sums16& sums, thread const Rows16& left,
                                   thread const Right16& right) {
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      ROWS_UNROLL
      for (int j = 0; j < 2; ++j) {
        metal::simdgroup_multiply_accumulate(sums.part[i], left.part[i][j], right.part[j],
                                             sums.part[i]);
      }
    }
  }
  // The sums' elements of a lane, in an order that is the same for all sums.
  ROWS_INLINE static float element(thread const Sums16& sums, int i) {
    return i % 2 == 0 ? sums.part[i / 2].thread_elements().x : sums.part[i / 2].thread_elements().y;
  }
  ROWS_INLINE static void set(thread Sums16& sums, int i, float value) {
    if (i % 2 == 0) {
      sums.part[i / 2].thread_elements().x = value;
    } else {
      sums.part[i / 2].thread_elements().y = value;
    }
  }
  ROWS_INLINE static Matrix8<T> rounded(thread const Matrix8<float>& from) {
    Matrix8<T> to;
    to.thread_elements() =
        metal::vec<T, 2>(T(from.thread_elements().x), T(from.thread_elements().y));
    return to;
  }
  ROWS_INLINE static void join(thread Rows16& rows, thread const Sums16& left,
                               thread const Sums16& right) {
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      rows.part[i][0] = rounded(left.part[i]);
      rows.part[i][1] = rounded(right.part[i]);
    }
  }
  ROWS_INLINE static void clear(thread Rows16& rows) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      rows.part[i / 2][i % 2] = metal::make_filled_simdgroup_matrix<T, 8, 8>(T(0.0f));
    }
  }
  ROWS_INLINE static Matrix8<float> widened(thread const Matrix8<T>& from) {
    Matrix8<float> to;
    to.thread_elements() =
        metal::vec<float, 2>(float(from.thread_elements().x), float(from.thread_elements().y));
    return to;
  }
  // Undoes join.
  ROWS_INLINE static void separate(thread const Rows16& rows, thread Sums16& left,
                                   thread Sums16& right) {
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      left.part[i] = widened(rows.part[i][0]);
      right.part[i] = widened(rows.part[i][1]);
    }
  }

  // Sums side by side, as numbers of whole rows: a lane has elements of kLaneRows rows, which it
  // shares with the lanes of reduce(). `space` has room for all of them.
  static constexpr constant int kLaneRows = 1;
  ROWS_INLINE static int row(int, uint lane) { return int(lane / 2); }
  template <int N>
  ROWS_INLINE static int column(int i, uint lane) {
    return int(lane % 2) * 4 * N + i;
  }
  template <int N>
  ROWS_INLINE static void read(thread const Sums16 (&sums)[N], thread float (&to)[1][4 * N],
                               threadgroup float* space, uint lane) {
    ROWS_UNROLL
    for (int i = 0; i < 2 * N; ++i) {
      metal::simdgroup_store(sums[i / 2].part[i % 2], space + i % 2 * 64 * N + i / 2 * 8, 8 * N);
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    for (int i = 0; i < 4 * N; ++i) to[0][i] = space[lane * 4 * N + i];
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  // As left operands, of 16 columns each.
  template <int N>
  ROWS_INLINE static void write(thread const float (&from)[1][8 * N], thread Rows16 (&rows)[N],
                                threadgroup float* space, uint lane) {
    threadgroup T* const staged = (threadgroup T*)space;
    for (int i = 0; i < 8 * N; ++i) staged[lane * 8 * N + i] = T(from[0][i]);
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    ROWS_UNROLL
    for (int i = 0; i < 4 * N; ++i) {
      metal::simdgroup_load(rows[i / 4].part[i / 2 % 2][i % 2],
                            staged + i / 2 % 2 * 128 * N + i / 4 * 16 + i % 2 * 8, 16 * N);
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  // A row's sum, or maximum, of its lanes' values.
  ROWS_INLINE static float row_sum(float x) { return x + metal::simd_shuffle_xor(x, 1); }
  ROWS_INLINE static float row_max(float x) { return metal::max(x, metal::simd_shuffle_xor(x, 1)); }
  // Rows times factors. Not by a product with a diagonal matrix: NaN would go from row to row.
  template <int N>
  ROWS_INLINE static void scale(thread Sums16 (&sums)[N], thread const float (&factors)[1],
                                threadgroup float* space, uint lane) {
    if (lane % 2 == 0) space[lane / 2] = factors[0];
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    Matrix8<float> of[2];
    metal::simdgroup_load(of[0], space, 0, ulong2(0, 0), true);
    metal::simdgroup_load(of[1], space + 8, 0, ulong2(0, 0), true);
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    ROWS_UNROLL
    for (int i = 0; i < 2 * N; ++i) {
      const Matrix8<float> from = sums[i / 2].part[i % 2];
      sums[i / 2].part[i % 2].thread_elements() =
          metal::vec<float, 2>(from.thread_elements().x * of[i % 2].thread_elements().x,
                               from.thread_elements().y * of[i % 2].thread_elements().y);
    }
  }

  // Blocks of ROWS16_BLOCK elements in threadgroup memory, by which simdgroups hand each other rows.
  // Rows from `n` on are written as zeros.
  ROWS_INLINE static void put(thread const Rows16& rows, int n, threadgroup T* block, uint lane) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      metal::simdgroup_store(rows.part[i / 2][i % 2], block + i / 2 * 128 + i % 2 * 8, 16);
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    for (int i = 16 * metal::max(n, 0) + int(lane); i < ROWS16_BLOCK; i += 32) block[i] = T(0.0f);
  }
  // A block's columns as rows.
  ROWS_INLINE static void get_transposed(thread Rows16& rows, threadgroup const T* block, uint) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      metal::simdgroup_load(rows.part[i / 2][i % 2], block + i % 2 * 128 + i / 2 * 8, 16,
                            ulong2(0, 0), true);
    }
  }
  // The left and the right half of a block.
  ROWS_INLINE static void get(thread Right16 (&right)[2], threadgroup const T* block, uint) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      metal::simdgroup_load(right[i / 2].part[i % 2], block + i % 2 * 128 + i / 2 * 8, 16);
    }
  }

  ROWS_INLINE static void load(thread Sums16& sums, Piece<const T> from, threadgroup float* space,
                               uint lane) {
    Right16 right;
    load(right, from, space, lane);
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      sums.part[i].thread_elements() = metal::vec<float, 2>(
          float(right.part[i].thread_elements().x), float(right.part[i].thread_elements().y));
    }
  }
  ROWS_INLINE static void store(thread const Sums16& sums, Piece<T> to, threadgroup float* space,
                                uint lane) {
    if (to.rows >= 16 && to.columns >= 8) {
      ROWS_UNROLL
      for (int i = 0; i < 2; ++i) {
        metal::simdgroup_store(rounded(sums.part[i]), to.at + 8 * i * to.line, to.line);
      }
      return;
    }
    store_edge(sums, to, false, space, lane);
  }
  ROWS_INLINE static void add(thread const Sums16& sums, Piece<float> to, bool adds,
                              threadgroup float* space, uint lane) {
    store_edge(sums, to, adds, space, lane);
  }
  template <typename S>
  ROWS_INLINE static void store_edge(thread const Sums16& sums, Piece<S> to, bool adds,
                                     threadgroup float* space, uint lane) {
    metal::simdgroup_store(sums.part[0], space, 8);
    metal::simdgroup_store(sums.part[1], space + 64, 8);
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    for (int i = int(lane); i < 128; i += 32) {
      if (i / 8 >= to.rows || i % 8 >= to.columns) continue;
      device S* const at = to.at + i / 8 * to.line + i % 8;
      *at = S(space[i] + (adds ? float(*at) : 0.0f));
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
};

// ---- of the matrix unit's own pieces
// --------------------------------------------------------------------------------------------

#if defined(__HAVE_SIMDGROUP_MATRIX_16__)
template <typename T>
struct RowsOps<T, true> {
  struct Rows16 {
    uint part[4];
  };
  struct Right16 {
    uint part[2];
  };
  struct Sums16 {
    float part[4];
  };

  ROWS_INLINE static uint position(uint k, uint n) {
    return (n * 4 + k % 8 / 2) * 4 + k / 8 * 2 + k % 2;
  }
  ROWS_INLINE static void load(thread Right16& right, device const T* packed, uint block,
                               uint lane) {
    const uint2 both = ((device const uint2*)packed)[block * 32 + lane];
    right.part[0] = both.x;
    right.part[1] = both.y;
  }

  // Whether pairs of a matrix may be read at once.
  template <typename S>
  ROWS_INLINE static bool is_even(device S* at, long line) {
    return ((line & 1) | long(reinterpret_cast<ulong>(at) & 3)) == 0;
  }
  // Two neighbours.
  ROWS_INLINE static uint pair(Piece<const T> from, bool even, int row, int column) {
    if (even && row < from.rows && column + 1 < from.columns) {
      return *(device const uint*)(from.at + row * from.line + column);
    }
    const bool first = row < from.rows && column < from.columns;
    const bool second = row < from.rows && column + 1 < from.columns;
    device const T* const at = from.at + row * from.line + column;
    return as_type<uint>(metal::vec<T, 2>(first ? T(at[0]) : T(0.0f), second ? T(at[1]) : T(0.0f)));
  }
  // Where a lane's first pair lies.
  template <typename S>
  ROWS_INLINE static device S* first_pair(Piece<S> piece, uint lane) {
    return piece.at + long(lane / 4) * piece.line + lane % 4 * 2;
  }
  template <typename S>
  ROWS_INLINE static bool is_whole(Piece<S> piece, int columns) {
    return piece.rows >= 16 && piece.columns >= columns && is_even(piece.at, piece.line);
  }
  ROWS_INLINE static void load(thread Rows16& rows, Piece<const T> from, threadgroup float*,
                               uint lane) {
    if (is_whole(from, 16)) {
      device const T* const upper = first_pair(from, lane);
      device const T* const lower = upper + 8 * from.line;
      rows.part[0] = *(device const uint*)upper;
      rows.part[1] = *(device const uint*)lower;
      rows.part[2] = *(device const uint*)(upper + 8);
      rows.part[3] = *(device const uint*)(lower + 8);
      return;
    }
    const bool even = is_even(from.at, from.line);
    const int row = int(lane / 4), column = int(lane % 4 * 2);
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      rows.part[i] = pair(from, even, row + i % 2 * 8, column + i / 2 * 8);
    }
  }
  // Two pairs below each other.
  template <bool kWhole = false>
  ROWS_INLINE static uint2 two_pairs(Piece<const T> from, uint lane) {
    if (kWhole || is_whole(from, 8)) {
      device const T* const upper = first_pair(from, lane);
      return uint2(*(device const uint*)upper, *(device const uint*)(upper + 8 * from.line));
    }
    const bool even = is_even(from.at, from.line);
    const int row = int(lane / 4), column = int(lane % 4 * 2);
    return uint2(pair(from, even, row, column), pair(from, even, row + 8, column));
  }
  ROWS_INLINE static void load_transposed(thread Rows16& rows, Piece<const T> from,
                                          threadgroup float* space, uint lane) {
    Rows16 straight;
    load(straight, from, space, lane);
    rows.part[0] = _msl::transposed_8(straight.part[0]);
    rows.part[1] = _msl::transposed_8(straight.part[2]);
    rows.part[2] = _msl::transposed_8(straight.part[1]);
    rows.part[3] = _msl::transposed_8(straight.part[3]);
  }
  template <bool kWhole = false>
  ROWS_INLINE static void load(thread Right16& right, Piece<const T> from, threadgroup float*,
                               uint lane) {
    const uint2 pairs = two_pairs<kWhole>(from, lane);
    right.part[0] = _msl::transposed_8(pairs.x);
    right.part[1] = _msl::transposed_8(pairs.y);
  }
  template <bool kWhole = false>
  ROWS_INLINE static void load_transposed(thread Right16& right, Piece<const T> from,
                                          threadgroup float*, uint lane) {
    if (kWhole || (from.rows >= 8 && from.columns >= 16 && is_even(from.at, from.line))) {
      device const T* const first = first_pair(from, lane);
      right.part[0] = *(device const uint*)first;
      right.part[1] = *(device const uint*)(first + 8);
      return;
    }
    const bool even = is_even(from.at, from.line);
    const int row = int(lane / 4), column = int(lane % 4 * 2);
    right.part[0] = pair(from, even, row, column);
    right.part[1] = pair(from, even, row, column + 8);
  }

  ROWS_INLINE static void fill(thread Sums16& sums, device const float* columns, uint lane) {
    sums.part[0] = sums.part[2] = columns[lane % 4 * 2];
    sums.part[1] = sums.part[3] = columns[lane % 4 * 2 + 1];
  }
  ROWS_INLINE static void clear(thread Sums16& sums) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) sums.part[i] = 0.0f;
  }
  ROWS_INLINE static void multiply(thread Sums16& sums, thread const Rows16& left,
                                   thread const Right16& right) {
    _msl::multiply_16<T>(sums.part, left.part, right.part);
  }
  ROWS_INLINE static float element(thread const Sums16& sums, int i) { return sums.part[i]; }
  ROWS_INLINE static void set(thread Sums16& sums, int i, float value) { sums.part[i] = value; }
  ROWS_INLINE static uint rounded(float x, float y) { return _msl::packed_16<T>(x, y); }
  ROWS_INLINE static void join(thread Rows16& rows, thread const Sums16& left,
                               thread const Sums16& right) {
    rows.part[0] = rounded(left.part[0], left.part[1]);
    rows.part[1] = rounded(left.part[2], left.part[3]);
    rows.part[2] = rounded(right.part[0], right.part[1]);
    rows.part[3] = rounded(right.part[2], right.part[3]);
  }
  ROWS_INLINE static void clear(thread Rows16& rows) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) rows.part[i] = 0;
  }
  ROWS_INLINE static void separate(thread const Rows16& rows, thread Sums16& left,
                                   thread Sums16& right) {
    ROWS_UNROLL
    for (int i = 0; i < 2; ++i) {
      const metal::vec<T, 2> first = as_type<metal::vec<T, 2>>(uint(rows.part[i]));
      const metal::vec<T, 2> second = as_type<metal::vec<T, 2>>(uint(rows.part[i + 2]));
      left.part[2 * i] = float(first.x);
      left.part[2 * i + 1] = float(first.y);
      right.part[2 * i] = float(second.x);
      right.part[2 * i + 1] = float(second.y);
    }
  }

  static constexpr constant int kLaneRows = 2;
  ROWS_INLINE static int row(int r, uint lane) { return int(lane / 4) + 8 * r; }
  template <int N>
  ROWS_INLINE static int column(int i, uint lane) {
    return i / 2 * 8 + int(lane % 4 * 2) + i % 2;
  }
  template <int N>
  ROWS_INLINE static void read(thread const Sums16 (&sums)[N], thread float (&to)[2][2 * N],
                               threadgroup float*, uint) {
    ROWS_UNROLL
    for (int i = 0; i < 4 * N; ++i) to[i / 2 % 2][i / 4 * 2 + i % 2] = sums[i / 4].part[i % 4];
  }
  template <int N>
  ROWS_INLINE static void write(thread const float (&from)[2][4 * N], thread Rows16 (&rows)[N],
                                threadgroup float*, uint) {
    ROWS_UNROLL
    for (int i = 0; i < 4 * N; ++i) {
      const int at = i / 4 * 4 + i % 4 / 2 * 2;
      rows[i / 4].part[i % 4] = rounded(from[i % 2][at], from[i % 2][at + 1]);
    }
  }
  ROWS_INLINE static float row_sum(float x) {
    x += metal::simd_shuffle_xor(x, 1);
    return x + metal::simd_shuffle_xor(x, 2);
  }
  ROWS_INLINE static float row_max(float x) {
    x = metal::max(x, metal::simd_shuffle_xor(x, 1));
    return metal::max(x, metal::simd_shuffle_xor(x, 2));
  }
  template <int N>
  ROWS_INLINE static void scale(thread Sums16 (&sums)[N], thread const float (&factors)[2],
                                threadgroup float*, uint) {
    ROWS_UNROLL
    for (int i = 0; i < 4 * N; ++i) sums[i / 4].part[i % 4] *= factors[i / 2 % 2];
  }

  // Part after part, each row after row: reads and writes of eight lanes are in different banks.
  ROWS_INLINE static void put(thread const Rows16& rows, int n, threadgroup T* block, uint lane) {
    threadgroup uint* const to = (threadgroup uint*)block + lane;
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      to[32 * i] = int(lane / 4) + i % 2 * 8 < n ? rows.part[i] : 0;
    }
  }
  ROWS_INLINE static void get_transposed(thread Rows16& rows, threadgroup const T* block,
                                         uint lane) {
    uint parts[4];
    _msl::load_transposed_8(parts, block + 8 * lane);
    rows.part[0] = parts[0];
    rows.part[1] = parts[2];
    rows.part[2] = parts[1];
    rows.part[3] = parts[3];
  }
  ROWS_INLINE static void get(thread Right16 (&right)[2], threadgroup const T* block, uint lane) {
    uint parts[4];
    _msl::load_transposed_8(parts, block + 8 * lane);
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) right[i / 2].part[i % 2] = parts[i];
  }
  ROWS_INLINE static void load(thread Sums16& sums, Piece<const T> from, threadgroup float*,
                               uint lane) {
    const uint2 pairs = two_pairs(from, lane);
    const metal::vec<T, 2> upper = as_type<metal::vec<T, 2>>(uint(pairs.x));
    const metal::vec<T, 2> lower = as_type<metal::vec<T, 2>>(uint(pairs.y));
    sums.part[0] = float(upper.x);
    sums.part[1] = float(upper.y);
    sums.part[2] = float(lower.x);
    sums.part[3] = float(lower.y);
  }
  ROWS_INLINE static void store(thread const Sums16& sums, Piece<T> to, threadgroup float*,
                                uint lane) {
    device T* const upper = first_pair(to, lane);
    if (is_whole(to, 8)) {
      *(device uint*)upper = rounded(sums.part[0], sums.part[1]);
      *(device uint*)(upper + 8 * to.line) = rounded(sums.part[2], sums.part[3]);
      return;
    }
    const int row = int(lane / 4), column = int(lane % 4 * 2);
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (row + i / 2 * 8 >= to.rows || column + i % 2 >= to.columns) continue;
      upper[i / 2 * 8 * to.line + i % 2] = T(sums.part[i]);
    }
  }
  ROWS_INLINE static void add(thread const Sums16& sums, Piece<float> to, bool adds,
                              threadgroup float*, uint lane) {
    ROWS_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = int(lane / 4) + i / 2 * 8, column = int(lane % 4 * 2) + i % 2;
      if (row >= to.rows || column >= to.columns) continue;
      device float* const at = to.at + row * to.line + column;
      *at = sums.part[i] + (adds ? *at : 0.0f);
    }
  }
};
template <typename T>
using Rows = RowsOps<T, sizeof(T) == 2>;
#else
template <typename T>
using Rows = RowsOps<T, false>;
#endif

#endif  // METAL_OPS_KERNELS_GEMM_SIMDGROUP_ROWS_METAL_H_
