// matmul2d on a processor. The last lane of a simdgroup to come computes the simdgroup's part of the product: rectangles of the
// destination's fragments. Operands are copied to blocks of floats (integers for int32 sums), products of which are sums in vectors.
#pragma once

#include "cooperative_tensor.h"

namespace _msl {

// ---- operands, as a matrix whose rows and columns are those of memory
// In memory. Elements outside are 0.
template <class T, class Pointer>
struct InMemory {
  typedef T value_type;
  Pointer data;
  int rows, columns;
  long row_stride, column_stride;

  template <class Tensor>
  static InMemory of(const Tensor& tensor) {
    return {tensor._msl_data(), int(tensor.get_extent(1)), int(tensor.get_extent(0)),
            long(tensor.get_stride(1)), long(tensor.get_stride(0))};
  }
  bool has(int row, int column) const { return row < rows && column < columns; }
  T get(int row, int column) const {
    return has(row, column) ? T(data[row * row_stride + column * column_stride]) : T(0);
  }
  void set(int row, int column, T value) const {
    if (has(row, column)) data[row * row_stride + column * column_stride] = value;
  }
};
// With the lanes of a simdgroup; absent lanes' elements are 0.
template <class T, class Layout>
struct WithLanes {
  typedef T value_type;
  T* elements[Layout::simdgroups ? kSimdWidth : 1];
  unsigned simdgroup;

  T* find(int row, int column) const {
    if constexpr (!Layout::simdgroups) {
      return elements[0] + row * Layout::columns + column;
    } else {
      const LaneMap& map = _msl_lane_map;
      const int side = int(map.side);
      const int across = fragments_in(Layout::columns, map.side);
      const int square = row / side * across + column / side;
      const int place = row % side * side + column % side;
      T* const of = elements[map.lane[place]];
      const int number = square - int(simdgroup) * Layout::each(map.side);
      return of ? of + number * int(map.elements) + map.element[place] : nullptr;
    }
  }
  T get(int row, int column) const {
    const T* at = find(row, column);
    return at ? *at : T(0);
  }
  void set(int row, int column, T value) const {
    if (T* at = find(row, column)) *at = value;
  }
};

// ---- blocks
constexpr int kBlockRows = 64, kBlockColumns = 64, kBlockDepth = 32;

// Rows and columns from (row, column) on, `turned`: exchanged. Beyond them, up to `full`, are zeros.
template <class Sum, int line, class Operand>
inline void copy_block(Sum* to, const Operand& from, bool turned, int row, int column, int rows,
                       int columns, int full_rows, int full_columns) {
  for (int i = 0; i < full_rows; ++i)
    for (int j = i < rows ? columns : 0; j < full_columns; ++j) to[i * line + j] = Sum(0);
  if (turned) {
    for (int j = 0; j < columns; ++j)
      for (int i = 0; i < rows; ++i) to[i * line + j] = Sum(from.get(column + j, row + i));
  } else {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) to[i * line + j] = Sum(from.get(row + i, column + j));
  }
}
// Neighbours, eight at a time: left to itself, clang converts halves one by one.
template <class Sum, class T, class Pointer>
inline void copy_row(Sum* to, Pointer from, int n) {
  typedef Sum To __attribute__((ext_vector_type(8), aligned(sizeof(Sum))));
  typedef metal::conditional_t<__is_same(T, bfloat), ushort, T> Element;
  typedef Element From __attribute__((ext_vector_type(8)));
  int j = 0;
  for (; j + 8 <= n; j += 8) {
    From eight;
    __builtin_memcpy(&eight, (const void*)(from + j), sizeof(eight));
    if constexpr (__is_same(T, bfloat)) {
      typedef uint Bits8 __attribute__((ext_vector_type(8)));
      *(To*)(to + j) = __builtin_bit_cast(To, __builtin_convertvector(eight, Bits8) << 16);
    } else {
      *(To*)(to + j) = __builtin_convertvector(eight, To);
    }
  }
  for (; j < n; ++j) to[j] = Sum(T(from[j]));
}
template <class Sum, class T, class Bytes, bool is_signed>
inline void copy_row(Sum* to, FourBits<Bytes, is_signed> from, int n) {
  for (int j = 0; j < n; ++j) to[j] = Sum(from[j]);
}
// The same without a question for each element.
template <class Sum, int line, class T, class Pointer>
inline void copy_block(Sum* to, const InMemory<T, Pointer>& from, bool turned, int row, int column,
                       int rows, int columns, int full_rows, int full_columns) {
  rows = metal::clamp((turned ? from.columns : from.rows) - row, 0, rows);
  columns = metal::clamp((turned ? from.rows : from.columns) - column, 0, columns);
  for (int i = 0; i < full_rows; ++i)
    for (int j = i < rows ? columns : 0; j < full_columns; ++j) to[i * line + j] = Sum(0);
  const long down = turned ? from.column_stride : from.row_stride;
  const long right = turned ? from.row_stride : from.column_stride;
  const auto first = from.data + row * down + column * right;
  if (right == 1) {
    for (int i = 0; i < rows; ++i) copy_row<Sum, T>(to + i * line, first + i * down, columns);
  } else if (down == 1) {
    for (int j = 0; j < columns; ++j) {
      Sum column_of[kBlockColumns];
      copy_row<Sum, T>(column_of, first + j * right, rows);
      for (int i = 0; i < rows; ++i) to[i * line + j] = column_of[i];
    }
  } else {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) to[i * line + j] = Sum(T(first[i * down + j * right]));
  }
}
// The elements of lanes from (row, column) on, in runs of neighbours: work(row, column, lane, its first of them, how many).
template <class T, class Layout, class F>
inline void each_run(const WithLanes<T, Layout>& of, int row, int column, int rows, int columns,
                     F work) {
  const LaneMap& map = _msl_lane_map;
  const int side = int(map.side), across = fragments_in(Layout::columns, map.side);
  const int first = int(of.simdgroup) * Layout::each(map.side);
  for (int r = 0; r < rows; r += side) {
    for (int c = 0; c < columns; c += side) {
      const int number = (row + r) / side * across + (column + c) / side - first;
      for (unsigned lane = 0; lane < kSimdWidth; ++lane) {
        T* const at = of.elements[lane];
        for (unsigned e = 0; e < map.elements; e += map.run) {
          const int down = r + map.row[lane][e], right = c + map.column[lane][e];
          if (down >= rows || right >= columns) continue;
          T* const from = at ? at + number * int(map.elements) + e : nullptr;
          // Four constants are code without a loop.
          if (map.run == 4 && right + 4 <= columns)
            work(down, right, from, 4);
          else if (map.run == 2 && right + 2 <= columns)
            work(down, right, from, 2);
          else
            work(down, right, from, metal::min(int(map.run), columns - right));
        }
      }
    }
  }
}
template <class Sum, int line, class T, class Layout>
inline void copy_block(Sum* to, const WithLanes<T, Layout>& from, bool turned, int row, int column,
                       int rows, int columns, int full_rows, int full_columns) {
  for (int i = 0; i < full_rows; ++i)
    for (int j = i < rows ? columns : 0; j < full_columns; ++j) to[i * line + j] = Sum(0);
  if constexpr (!Layout::simdgroups) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j)
        to[i * line + j] =
            Sum(turned ? from.get(column + j, row + i) : from.get(row + i, column + j));
  } else if (turned) {
    each_run(from, column, row, columns, rows, [=](int r, int c, const T* at, int n) {
      for (int x = 0; x < n; ++x) to[(c + x) * line + r] = at ? Sum(at[x]) : Sum(0);
    });
  } else {
    each_run(from, row, column, rows, columns, [=](int r, int c, const T* at, int n) {
      for (int x = 0; x < n; ++x) to[r * line + c + x] = at ? Sum(at[x]) : Sum(0);
    });
  }
}
template <class Sum, int line, class Operand>
inline void store_block(const Operand& to, const Sum* from, int row, int column, int rows,
                        int columns) {
  typedef typename Operand::value_type T;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to.set(row + i, column + j, T(from[i * line + j]));
}
template <class Sum, int line, class T, class Layout>
inline void store_block(const WithLanes<T, Layout>& to, const Sum* from, int row, int column,
                        int rows, int columns) {
  if constexpr (!Layout::simdgroups) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) to.set(row + i, column + j, T(from[i * line + j]));
  } else {
    each_run(to, row, column, rows, columns, [=](int r, int c, T* at, int n) {
      for (int x = 0; x < n && at; ++x) at[x] = T(from[r * line + c + x]);
    });
  }
}

// c += a * b: 4 rows and 16 columns at a time, of which the sums stay in registers.
template <class Sum>
inline void add_products(Sum* c, const Sum* a, long a_line, const Sum* b, long b_line, int rows,
                         int columns, int depth) {
  typedef Sum Eight __attribute__((ext_vector_type(8), aligned(sizeof(Sum))));
  for (int i = 0; i < rows; i += 4) {
    for (int j = 0; j < columns; j += 16) {
      Eight sums[4][2];
#pragma clang loop unroll(full)
      for (int r = 0; r < 4; ++r) {
        const auto* from = (const Eight*)(c + (i + r) * kBlockColumns + j);
        sums[r][0] = from[0], sums[r][1] = from[1];
      }
      for (int k = 0; k < depth; ++k) {
        const auto* right = (const Eight*)(b + k * b_line + j);
        const Eight low = right[0], high = right[1];
#pragma clang loop unroll(full)
        for (int r = 0; r < 4; ++r) {
          const Eight left = Eight(a[(i + r) * a_line + k]);
          if constexpr (__is_same(Sum, float)) {
            sums[r][0] = __builtin_elementwise_fma(left, low, sums[r][0]);
            sums[r][1] = __builtin_elementwise_fma(left, high, sums[r][1]);
          } else {
            sums[r][0] += left * low, sums[r][1] += left * high;
          }
        }
      }
#pragma clang loop unroll(full)
      for (int r = 0; r < 4; ++r) {
        auto* to = (Eight*)(c + (i + r) * kBlockColumns + j);
        to[0] = sums[r][0], to[1] = sums[r][1];
      }
    }
  }
}

inline int up_to(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// A block: a copy, or its place in memory where it lies there as it is needed.
template <class Sum>
struct BlockOf {
  const Sum* data;
  long line;
};
template <class Sum, int line, class Operand>
inline BlockOf<Sum> block(Sum* copy, const Operand& from, bool turned, int row, int column,
                          int rows, int columns, int full_rows, int full_columns) {
  copy_block<Sum, line>(copy, from, turned, row, column, rows, columns, full_rows, full_columns);
  return {copy, line};
}
template <class Sum, int line, class Pointer>
inline BlockOf<Sum> block(Sum* copy, const InMemory<Sum, Pointer>& from, bool turned, int row,
                          int column, int rows, int columns, int full_rows, int full_columns) {
  if (!turned && from.column_stride == 1 && row + full_rows <= from.rows &&
      column + full_columns <= from.columns) {
    return {(const Sum*)(const void*)(from.data + row * from.row_stride + column), from.row_stride};
  }
  copy_block<Sum, line>(copy, from, turned, row, column, rows, columns, full_rows, full_columns);
  return {copy, line};
}

// One rectangle of a destination, at most a block.
template <class Sum, class Left, class Right, class Destination>
__attribute__((noinline)) void multiply_rectangle(const Left& left, bool turned_left,
                                                  const Right& right, bool turned_right,
                                                  const Destination& to, bool adds, int row,
                                                  int column, int rows, int columns, int depth) {
  Sum a[kBlockRows * kBlockDepth], b[kBlockDepth * kBlockColumns], c[kBlockRows * kBlockColumns];
  const int all_rows = up_to(rows, 4), all_columns = up_to(columns, 16);
  if (adds) {
    copy_block<Sum, kBlockColumns>(c, to, false, row, column, rows, columns, all_rows, all_columns);
  } else {
    for (int i = 0; i < all_rows; ++i)
      for (int j = 0; j < all_columns; ++j) c[i * kBlockColumns + j] = Sum(0);
  }
  for (int k = 0; k < depth; k += kBlockDepth) {
    const int part = metal::min(kBlockDepth, depth - k);
    const auto x =
        block<Sum, kBlockDepth>(a, left, turned_left, row, k, rows, part, all_rows, part);
    const auto y = block<Sum, kBlockColumns>(b, right, turned_right, k, column, part, columns, part,
                                             all_columns);
    add_products(c, x.data, x.line, y.data, y.line, all_rows, all_columns, part);
  }
  store_block<Sum, kBlockColumns>(to, c, row, column, rows, columns);
}
// The fragments that a simdgroup has of a destination of Layout's size, as few rectangles.
template <class Layout, class F>
inline void each_rectangle(unsigned simdgroup, F work) {
  const int side = Layout::simdgroups ? int(_msl_lane_map.side) : int(kLargestFragment);
  const int across = fragments_in(Layout::columns, unsigned(side));
  const int all = fragments_in(Layout::rows, unsigned(side)) * across;
  const int each = Layout::simdgroups ? Layout::each(unsigned(side)) : all;
  const int begin = int(simdgroup) * each, end = metal::min(begin + each, all);
  for (int at = begin; at < end;) {
    const int first = at % across, row = at / across * side;
    int wide = metal::min(across - first, end - at), high = 1;
    if (first == 0 && wide == across) {
      high = metal::min((end - at) / across, kBlockRows / side);
    }
    at += wide * high;
    const int rows = metal::min(high * side, Layout::rows - row);
    const int last = metal::min((first + wide) * side, Layout::columns);
    for (int column = first * side; column < last; column += kBlockColumns)
      work(row, column, rows, metal::min(kBlockColumns, last - column));
  }
}

}  // namespace _msl
