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
// The same without a question for each element, where all are there.
template <class Sum, int line, class T, class Pointer>
inline void copy_block(Sum* to, const InMemory<T, Pointer>& from, bool turned, int row, int column,
                       int rows, int columns, int full_rows, int full_columns) {
  for (int i = 0; i < full_rows; ++i)
    for (int j = i < rows ? columns : 0; j < full_columns; ++j) to[i * line + j] = Sum(0);
  const int most_rows = turned ? from.columns : from.rows;
  const int most_columns = turned ? from.rows : from.columns;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      if (row + i >= most_rows || column + j >= most_columns) to[i * line + j] = Sum(0);
  rows = metal::min(rows, most_rows - row);
  columns = metal::min(columns, most_columns - column);
  const long down = turned ? from.column_stride : from.row_stride;
  const long right = turned ? from.row_stride : from.column_stride;
  auto* const first = from.data + row * down + column * right;
  if (right == 1) {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) to[i * line + j] = Sum(T(first[i * down + j]));
  } else if (down == 1) {
    for (int j = 0; j < columns; ++j)
      for (int i = 0; i < rows; ++i) to[i * line + j] = Sum(T(first[j * right + i]));
  } else {
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) to[i * line + j] = Sum(T(first[i * down + j * right]));
  }
}
// c += a * b: 4 rows and 16 columns at a time, of which the sums stay in registers.
template <class Sum>
inline void add_products(Sum* c, const Sum* a, const Sum* b, int rows, int columns, int depth) {
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
        const auto* right = (const Eight*)(b + k * kBlockColumns + j);
        const Eight low = right[0], high = right[1];
#pragma clang loop unroll(full)
        for (int r = 0; r < 4; ++r) {
          const Eight left = Eight(a[(i + r) * kBlockDepth + k]);
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

// One rectangle of a destination, at most a block.
template <class Sum, class Left, class Right, class Destination>
__attribute__((noinline)) void multiply_rectangle(const Left& left, bool turned_left,
                                                  const Right& right, bool turned_right,
                                                  const Destination& to, bool adds, int row,
                                                  int column, int rows, int columns, int depth) {
  Sum a[kBlockRows * kBlockDepth], b[kBlockDepth * kBlockColumns], c[kBlockRows * kBlockColumns];
  const int all_rows = up_to(rows, 4), all_columns = up_to(columns, 16);
  for (int i = 0; i < all_rows; ++i)
    for (int j = 0; j < all_columns; ++j)
      c[i * kBlockColumns + j] =
          adds && i < rows && j < columns ? Sum(to.get(row + i, column + j)) : Sum(0);
  for (int k = 0; k < depth; k += kBlockDepth) {
    const int part = metal::min(kBlockDepth, depth - k);
    copy_block<Sum, kBlockDepth>(a, left, turned_left, row, k, rows, part, all_rows, part);
    copy_block<Sum, kBlockColumns>(b, right, turned_right, k, column, part, columns, part,
                                   all_columns);
    add_products(c, a, b, all_rows, all_columns, part);
  }
  typedef typename Destination::value_type T;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to.set(row + i, column + j, T(c[i * kBlockColumns + j]));
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
