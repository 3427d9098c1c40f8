// Products of matrices, and convolutions as implicit ones: which element of the input belongs to a
// row and a term of the sum is worked out while it is read. Sums are float32, whatever T.
//
// Two ways: gemm_thread_tile, where each thread sums a tile of its own and reads memory through the
// cache, and gemm_group_tile (gemm_tile.metal.h), where a threadgroup shares its reads and
// multiplies simdgroup matrices.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/epilogue.metal.h"
#include "kernels/gemm/gemm_params.h"

// Where the matrices of product `i` begin.
struct GemmOffsets {
  long a, b, out;
};
inline GemmOffsets gemm_offsets(constant GemmParams& params, uint i) {
  GemmOffsets offsets = {0, 0, long(i) * params.out_batch};
  for (uint d = 0; i != 0; ++d) {
    const long at = long(i % params.batch[d]);
    i /= params.batch[d];
    offsets.a += at * params.a_batch[d];
    offsets.b += at * params.b_batch[d];
  }
  return offsets;
}

// A row of the product: where its receptive field begins, and where it is stored.
struct GemmRow {
  long image;
  int top, left;
  long out;
};
inline GemmRow gemm_row(constant GemmParams& params, long row) {
  const uint points = params.out_h * params.out_w;
  const long image = row / long(points);
  const uint point = uint(row - image * long(points));
  const uint y = point / params.out_w, x = point - y * params.out_w;
  GemmRow found;
  found.image = image * params.a_image;
  found.top = int(y * params.stride_h) - params.pad_top;
  found.left = int(x * params.stride_w) - params.pad_left;
  found.out = image * params.out_image + long(point) * params.out_point;
  return found;
}

// Adds `n` terms of each of `lines`. `from` is where in a each row's lie, if inside, those of the next line `a_line`
// further, and `terms` where in b. Numbers and
// not pointers: from loop to loop a compiler loses of a pointer that it is none into `local`.
template <bool kSomeOutside, int kRows, int kColumns, typename T>
inline void gemm_add_terms(device const T* a, thread long (&from)[kRows],
                           thread bool (&inside)[kRows], long a_c, uint n, device const float* b,
                           long terms, long b_row, thread float (&sums)[kRows][kColumns],
                           uint lines = 1, long a_line = 0) {
  // A copy that is never indexed by a variable: it lives in registers.
  float local[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) local[r][j] = sums[r][j];
  }
  for (uint y = 0; y < lines; ++y) {
    for (uint c = 0; c < n; ++c, terms += b_row) {
      float line[kColumns];
      for (int j = 0; j < kColumns; ++j) line[j] = b[terms + j];
      for (int r = 0; r < kRows; ++r) {
        const long at = from[r] + long(y) * a_line + long(c) * a_c;
        const float value = !kSomeOutside || inside[r] ? float(a[at]) : 0.0f;
        for (int j = 0; j < kColumns; ++j) {
          local[r][j] = metal::fma(value, line[j], local[r][j]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) sums[r][j] = local[r][j];
  }
}

// The first of the points x, x + step, x + 2 step ... of a filter's row that is not below `bound`.
inline int gemm_first_point(int x, int step, int bound) {
  return x >= bound ? 0 : (bound - x + step - 1) / step;
}

// Stores the sums of the rows from `first_row` on and of the columns from `first_column` on, of which those from `column`
// on are wanted.
template <int kRows, int kColumns, typename T, typename Epilogue>
inline void gemm_put_tile(thread float (&sums)[kRows][kColumns], thread const GemmRow* rows,
                          long first_row, uint column, uint first_column, long product,
                          device T* out, constant GemmParams& params, Epilogue epilogue) {
  const int first = int(column - first_column);
  const int last = metal::min(kColumns, int(params.columns - first_column));
  const int rows_left = int(metal::min(params.rows - first_row, long(kRows)));
  const long to = product + long(first_column) * params.out_column;
  if (params.out_column == 1 && first == 0 && last == kColumns) {
    EpilogueColumns<kColumns> columns;
    epilogue.columns(first_column, columns);
    for (int r = 0; r < rows_left; ++r) {
      const long at = rows[r].out + to;
      epilogue.row(sums[r], columns, at);
      for (int j = 0; j < kColumns; ++j) out[at + j] = T(sums[r][j]);
    }
    return;
  }
  for (int j = first; j < last; ++j) {
    const typename Epilogue::Column channel = epilogue.column(first_column + j);
    for (int r = 0; r < rows_left; ++r) {
      const long at = rows[r].out + to + long(j) * params.out_column;
      out[at] = T(epilogue(sums[r][j], channel, at));
    }
  }
}

// Sums kRows x kColumns elements. b is packed (kernel gemm_pack), or its rows lie in
// memory as they are and have kColumns elements at least. Neighbouring threads take neighbouring
// rows, so they read the same part of b.
template <int kRows, int kColumns, typename T, typename Epilogue>
inline void gemm_thread_tile(device const T* a, device const float* b, device T* out,
                             constant GemmParams& params, Epilogue epilogue, uint3 position) {
  const GemmOffsets offsets = gemm_offsets(params, position.z);
  const long first_row = long(position.x) * kRows;
  const uint column = position.y * kColumns;
  // An unpacked b is read at its end where less than a whole tile is left.
  uint first_column = column;
  if (params.b_panel == 0) first_column = metal::min(column, params.columns - kColumns);
  long terms = offsets.b + (params.b_panel == 0 ? long(first_column) : position.y * params.b_panel);
  const long b_row = params.b_panel == 0 ? params.b_row : kColumns;

  GemmRow rows[kRows];
  float sums[kRows][kColumns] = {};
  if (params.filter_h == 1 && params.filter_w == 1 && params.in_h == 1 && params.out_h == 1 &&
      params.in_w == params.out_w && params.pad_left == 0 && params.pad_top == 0 &&
      params.rows <= long(params.out_w)) {
    // A plain product: a short sum takes no longer than finding the operands of an epilogue.
    long from[kRows];
    bool inside[kRows];
    for (int r = 0; r < kRows; ++r) {
      const long row = metal::min(first_row + r, params.rows - 1);
      from[r] = offsets.a + row * params.a_x;
      inside[r] = true;
      rows[r].out = row * params.out_point;
    }
    gemm_add_terms<false>(a, from, inside, params.a_c, params.depth, b, terms, b_row, sums);
  } else {
    // The points [begin, end) of a row of the filter lie inside the image for all rows of the tile.
    const int filter_w = int(params.filter_w), dilation_w = int(params.dilation_w);
    int begin = 0, end = filter_w;
    for (int r = 0; r < kRows; ++r) {
      rows[r] = gemm_row(params, metal::min(first_row + r, params.rows - 1));
      begin = metal::max(begin, gemm_first_point(rows[r].left, dilation_w, 0));
      end = metal::min(end, gemm_first_point(rows[r].left, dilation_w, int(params.in_w)));
    }
    // Where they follow each other in memory, their terms are one run.
    const bool run = params.a_c == 1 && params.a_x * long(dilation_w) == long(params.depth);
    // Most windows lie inside as a whole: their sums leave registers once.
    const int down = int(params.filter_h - 1) * int(params.dilation_h);
    bool whole = run && begin == 0 && end == filter_w;
    for (int r = 0; r < kRows; ++r) {
      whole = whole && rows[r].top >= 0 && rows[r].top + down < int(params.in_h);
    }
    if (whole) {
      long from[kRows];
      bool inside[kRows];
      for (int r = 0; r < kRows; ++r) {
        from[r] = offsets.a + rows[r].image + long(rows[r].top) * params.a_y +
                  long(rows[r].left) * params.a_x;
        inside[r] = true;
      }
      gemm_add_terms<false>(a, from, inside, params.a_c, params.filter_w * params.depth, b, terms,
                            b_row, sums, params.filter_h, params.a_y * long(params.dilation_h));
    }
    for (uint fy = 0; fy < params.filter_h && !whole; ++fy) {
      for (int fx = 0; fx < filter_w;) {
        const int points = run && fx == begin && begin < end ? end - begin : 1;
        const uint n = uint(points) * params.depth;
        long from[kRows];
        bool inside[kRows];
        bool all = true, any = false;
        for (int r = 0; r < kRows; ++r) {
          const int y = rows[r].top + int(fy * params.dilation_h);
          const int x = rows[r].left + fx * dilation_w;
          inside[r] = y >= 0 && y < int(params.in_h) && x >= 0 && x < int(params.in_w);
          all = all && inside[r];
          any = any || inside[r];
          const long at = rows[r].image + long(y) * params.a_y + long(x) * params.a_x;
          from[r] = offsets.a + (inside[r] ? at : 0);
        }
        if (all) {
          gemm_add_terms<false>(a, from, inside, params.a_c, n, b, terms, b_row, sums);
        } else if (any) {
          gemm_add_terms<true>(a, from, inside, params.a_c, n, b, terms, b_row, sums);
        }
        terms += b_row * long(n);
        fx += points;
      }
    }
  }

  gemm_put_tile(sums, rows, first_row, column, first_column, offsets.out, out, params, epilogue);
}

// b as panels of so many columns in float32, with zeros behind the last: element (k, j) of a panel
// is its k * panel_columns + j. One thread per row of a panel.
template <typename T>
[[kernel]] void gemm_pack(device const T* b [[buffer(0)]], device float* packed [[buffer(1)]],
                          constant GemmParams& params [[buffer(2)]],
                          constant uint& panel_columns [[buffer(3)]],
                          uint3 position [[thread_position_in_grid]],
                          uint3 size [[threads_per_grid]]) {
  const uint sum = position.x, panel = position.y;
  // position.z counts the matrices of b alone.
  long from = long(sum) * params.b_row;
  uint matrix = position.z;
  for (uint d = 0; matrix != 0; ++d) {
    if (params.b_batch[d] == 0) continue;
    from += long(matrix % params.batch[d]) * params.b_batch[d];
    matrix /= params.batch[d];
  }
  const uint columns = panel_columns;
  device float* to = packed + ((long(position.z) * size.y + panel) * size.x + sum) * long(columns);
  const uint column = panel * columns;
  const uint there = metal::min(columns, params.columns - column);
  device const T* line = b + from + long(column) * params.b_column;
  uint at = 0;
  if (params.b_column == 1) {  // as many as all panels have at least: a compiler knows the number
    for (; at + GEMM_THREAD_COLUMNS <= there; at += GEMM_THREAD_COLUMNS) {
      for (uint j = 0; j < GEMM_THREAD_COLUMNS; ++j) to[at + j] = float(line[at + j]);
    }
  }
  for (; at < there; ++at) to[at] = float(line[long(at) * params.b_column]);
  for (; at < columns; ++at) to[at] = 0.0f;
}

// kRows rows and kColumns columns per thread; b is float32 as it is or packed.
template <typename T, int kRows, int kColumns>
[[kernel, max_total_threads_per_threadgroup(32)]] void gemm_threads(
    device const T* a [[buffer(0)]], device const float* b [[buffer(1)]],
    device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    uint3 position [[thread_position_in_grid]]) {
  gemm_thread_tile<kRows, kColumns>(a, b, out, params, NoEpilogue(), position);
}

template <typename T, int kRows, int kColumns>
[[kernel, max_total_threads_per_threadgroup(32)]] void gemm_threads_fused(
    device const T* a [[buffer(0)]], device const float* b [[buffer(1)]],
    device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    device const T* gamma [[buffer(4)]], device const T* beta [[buffer(5)]],
    device const T* mean [[buffer(6)]], device const T* variance [[buffer(7)]],
    device const T* residual [[buffer(8)]], constant EpilogueParams& epilogue [[buffer(9)]],
    uint3 position [[thread_position_in_grid]]) {
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  gemm_thread_tile<kRows, kColumns>(a, b, out, params, fused, position);
}

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_METAL_H_
