// Products of matrices, and convolutions as implicit ones: which element of the input belongs to a
// row and a term of the sum is worked out while it is read. Sums are float32, whatever T.
//
// Two ways: gemm_thread_tile, where each thread sums a tile of its own and reads memory through the
// cache, and gemm_group_tile (gemm_tile.metal.h), where a threadgroup shares what it reads and
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
  GemmRow found;
  found.image = image * params.a_image;
  found.top = int(point / params.out_w * params.stride_h) - params.pad_top;
  found.left = int(point % params.out_w * params.stride_w) - params.pad_left;
  found.out = image * params.out_image + long(point) * params.out_point;
  return found;
}

// Adds the terms of one point of the filter. `from` is where each row's lie, if inside.
template <bool kSomeOutside, typename T>
inline void gemm_add_terms(device const T* thread (&from)[GEMM_THREAD_ROWS],
                           thread bool (&inside)[GEMM_THREAD_ROWS], long a_c, uint depth,
                           device const float* terms, long b_row,
                           thread float (&sums)[GEMM_THREAD_ROWS][GEMM_THREAD_COLUMNS]) {
  // A copy that is never indexed by a variable: it lives in registers.
  float local[GEMM_THREAD_ROWS][GEMM_THREAD_COLUMNS];
  for (int r = 0; r < GEMM_THREAD_ROWS; ++r) {
    for (int j = 0; j < GEMM_THREAD_COLUMNS; ++j) local[r][j] = sums[r][j];
  }
  for (uint c = 0; c < depth; ++c, terms += b_row) {
    for (int r = 0; r < GEMM_THREAD_ROWS; ++r) {
      const float value = !kSomeOutside || inside[r] ? float(from[r][long(c) * a_c]) : 0.0f;
      for (int j = 0; j < GEMM_THREAD_COLUMNS; ++j) {
        local[r][j] = metal::fma(value, float(terms[j]), local[r][j]);
      }
    }
  }
  for (int r = 0; r < GEMM_THREAD_ROWS; ++r) {
    for (int j = 0; j < GEMM_THREAD_COLUMNS; ++j) sums[r][j] = local[r][j];
  }
}

// Sums GEMM_THREAD_ROWS x GEMM_THREAD_COLUMNS elements. b is packed (kernel gemm_pack), or its rows
// lie in memory as they are and have GEMM_THREAD_COLUMNS elements at least. Neighbouring threads
// take neighbouring rows, so they read the same part of b.
template <typename T, typename Epilogue>
inline void gemm_thread_tile(device const T* a, device const float* b, device T* out,
                             constant GemmParams& params, Epilogue epilogue, uint3 position) {
  constexpr int kRows = GEMM_THREAD_ROWS, kColumns = GEMM_THREAD_COLUMNS;
  const GemmOffsets offsets = gemm_offsets(params, position.z);
  const long first_row = long(position.x) * kRows;
  const uint column = position.y * kColumns;
  // An unpacked b is read at its end where less than a whole tile is left.
  uint first_column = column;
  if (params.b_panel == 0) first_column = metal::min(column, params.columns - kColumns);
  device const float* terms =
      b + offsets.b + (params.b_panel == 0 ? long(first_column) : position.y * params.b_panel);
  const long b_row = params.b_panel == 0 ? params.b_row : kColumns;

  GemmRow rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = gemm_row(params, metal::min(first_row + r, params.rows - 1));
  }
  float sums[kRows][kColumns] = {};
  for (uint fy = 0; fy < params.filter_h; ++fy) {
    for (uint fx = 0; fx < params.filter_w; ++fx) {
      device const T* from[kRows];
      bool inside[kRows];
      bool all = true, any = false;
      for (int r = 0; r < kRows; ++r) {
        const int y = rows[r].top + int(fy * params.dilation_h);
        const int x = rows[r].left + int(fx * params.dilation_w);
        inside[r] = y >= 0 && y < int(params.in_h) && x >= 0 && x < int(params.in_w);
        all = all && inside[r];
        any = any || inside[r];
        const long at = rows[r].image + long(y) * params.a_y + long(x) * params.a_x;
        from[r] = a + offsets.a + (inside[r] ? at : 0);
      }
      if (all) {
        gemm_add_terms<false>(from, inside, params.a_c, params.depth, terms, b_row, sums);
      } else if (any) {
        gemm_add_terms<true>(from, inside, params.a_c, params.depth, terms, b_row, sums);
      }
      terms += b_row * long(params.depth);
    }
  }

  const int first = int(column - first_column);
  const int last = metal::min(kColumns, int(params.columns - first_column));
  const int rows_left = int(metal::min(params.rows - first_row, long(kRows)));
  const long to = offsets.out + long(first_column) * params.out_column;
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

// b as panels of GEMM_THREAD_COLUMNS columns in float32, with zeros behind the last: element (k, j)
// of a panel is its k * GEMM_THREAD_COLUMNS + j. One thread a row of a panel.
template <typename T>
[[kernel]] void gemm_pack(device const T* b [[buffer(0)]], device float* packed [[buffer(1)]],
                          constant GemmParams& params [[buffer(2)]],
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
  device float* to =
      packed + ((long(position.z) * size.y + panel) * size.x + sum) * GEMM_THREAD_COLUMNS;
  const uint column = panel * GEMM_THREAD_COLUMNS;
  for (uint j = 0; j < GEMM_THREAD_COLUMNS; ++j) {
    const bool there = column + j < params.columns;
    to[j] = there ? float(b[from + long(column + j) * params.b_column]) : 0.0f;
  }
}

// Four rows and sixteen columns a thread; b is float32 as it is or packed.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(32)]] void gemm_threads(
    device const T* a [[buffer(0)]], device const float* b [[buffer(1)]],
    device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    uint3 position [[thread_position_in_grid]]) {
  gemm_thread_tile(a, b, out, params, NoEpilogue(), position);
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(32)]] void gemm_threads_fused(
    device const T* a [[buffer(0)]], device const float* b [[buffer(1)]],
    device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    device const T* gamma [[buffer(4)]], device const T* beta [[buffer(5)]],
    device const T* mean [[buffer(6)]], device const T* variance [[buffer(7)]],
    device const T* residual [[buffer(8)]], constant EpilogueParams& epilogue [[buffer(9)]],
    uint3 position [[thread_position_in_grid]]) {
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  gemm_thread_tile(a, b, out, params, fused, position);
}

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_METAL_H_
