// Products and convolutions that nothing is fused to: the fused ops' shaders without their
// epilogue; products of long sums, in parts; and gradients of filters, which are such products.

#include <metal_stdlib>

#include "kernels/gemm/gemm.metal.h"
#include "kernels/gemm/gemm_cached.metal.h"
#include "kernels/gemm/gemm_tile.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

INSTANTIATE_KERNEL("gemm_pack_float", gemm_pack, float)
INSTANTIATE_KERNEL("gemm_pack_half", gemm_pack, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_pack_bfloat", gemm_pack, bfloat))

INSTANTIATE_KERNEL("gemm_threads_float", gemm_threads, float, GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS)
INSTANTIATE_KERNEL("gemm_threads_half", gemm_threads, half, GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_threads_bfloat", gemm_threads, bfloat, GEMM_THREAD_ROWS,
                             GEMM_THREAD_COLUMNS))

#if defined(__METAL_CPU__)
INSTANTIATE_KERNEL("gemm_cached_float", gemm_cached, float)
INSTANTIATE_KERNEL("gemm_cached_half", gemm_cached, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_cached_bfloat", gemm_cached, bfloat))
INSTANTIATE_KERNEL("gemm_wide_float", gemm_threads, float, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)
INSTANTIATE_KERNEL("gemm_wide_half", gemm_threads, half, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_wide_bfloat", gemm_threads, bfloat, GEMM_WIDE_ROWS,
                             GEMM_WIDE_COLUMNS))
INSTANTIATE_KERNEL("gemm_middle_float", gemm_threads, float, GEMM_MIDDLE_ROWS, GEMM_MIDDLE_COLUMNS)
INSTANTIATE_KERNEL("gemm_middle_half", gemm_threads, half, GEMM_MIDDLE_ROWS, GEMM_MIDDLE_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_middle_bfloat", gemm_threads, bfloat, GEMM_MIDDLE_ROWS,
                             GEMM_MIDDLE_COLUMNS))
#endif

INSTANTIATE_KERNEL("gemm_tiles_float", gemm_tiles, float)
INSTANTIATE_KERNEL("gemm_tiles_half", gemm_tiles, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_tiles_bfloat", gemm_tiles, bfloat))

// Parts of long sums, a product each: the terms of gemm_sum_parts.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(GEMM_TILE_THREADS)]] void gemm_tiles_parts(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
    device float* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    uint3 group [[threadgroup_position_in_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T a_tile[GEMM_TILE_ROWS * GEMM_TILE_A_LINE];
  threadgroup T b_tile[GEMM_TILE_DEPTH * GEMM_TILE_B_LINE];
  threadgroup float sum_tiles[4 * GEMM_TILE_SUMS];
  gemm_group_tile(a, b, out, params, NoEpilogue(), a_tile, b_tile, sum_tiles, group, thread_,
                  simdgroup, lane);
}

// Grid: the elements of the product.
template <typename T>
[[kernel]] void gemm_sum_parts(device const float* parts [[buffer(0)]], device T* out [[buffer(1)]],
                               constant GemmParams& params [[buffer(2)]],
                               uint i [[thread_position_in_grid]]) {
  float sum = 0.0f;
  for (uint part = 0; part < params.batch[0]; ++part) {
    sum += parts[long(part) * params.out_batch + long(i)];
  }
  out[i] = T(sum);
}

// The gradient of a convolution's filter: `params` are the convolution's. A row of the product is a
// point and a channel of the filter, a term a point of the output, so that nothing has to be
// transposed: neighbouring rows are neighbours in the input. Lines of output points are taken
// several at a time, a product each: as many as stay in the cache while the rows pass by.
// b is packed (kernel gemm_pack).
template <typename T, int kRows, int kColumns>
[[kernel, max_total_threads_per_threadgroup(32)]] void gemm_filter(
    device const T* in [[buffer(0)]], device const float* b [[buffer(1)]],
    device float* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    constant GemmLines& lines [[buffer(4)]], uint3 position [[thread_position_in_grid]]) {
  const uint rows = params.filter_h * params.filter_w * params.depth;
  const uint first_row = position.x * kRows;
  const uint column = position.y * kColumns;
  const int out_w = int(params.out_w), stride_w = int(params.stride_w);
  long channel[kRows];
  int top[kRows], left[kRows];
  // The points [begin, end) of a line lie inside the image for all rows of the tile.
  int begin = 0, end = out_w;
  for (int r = 0; r < kRows; ++r) {
    const uint row = metal::min(first_row + r, rows - 1);
    const uint point = row / params.depth;
    channel[r] = long(row % params.depth) * params.a_c;
    top[r] = int(point / params.filter_w * params.dilation_h) - params.pad_top;
    left[r] = int(point % params.filter_w * params.dilation_w) - params.pad_left;
    begin = metal::max(begin, gemm_first_point(left[r], stride_w, 0));
    end = metal::min(end, gemm_first_point(left[r], stride_w, int(params.in_w)));
  }
  const long step = params.a_x * long(stride_w);
  const uint first_line = position.z * lines.part;
  const uint last_line = metal::min(first_line + lines.part, lines.all);
  long terms = position.y * params.b_panel + long(first_line) * long(out_w) * kColumns;
  float sums[kRows][kColumns] = {};
  uint image = first_line / params.out_h, line_y = first_line % params.out_h;
  for (uint line = first_line; line < last_line; ++line) {
    for (int line_x = 0; line_x < out_w;) {
      const int points = line_x == begin && begin < end ? end - begin : 1;
      long from[kRows];
      bool inside[kRows];
      bool all = true, any = false;
      for (int r = 0; r < kRows; ++r) {
        const int y = top[r] + int(line_y * params.stride_h);
        const int x = left[r] + line_x * stride_w;
        inside[r] = y >= 0 && y < int(params.in_h) && x >= 0 && x < int(params.in_w);
        all = all && inside[r];
        any = any || inside[r];
        const long at = long(image) * params.a_image + long(y) * params.a_y + long(x) * params.a_x;
        from[r] = inside[r] ? at + channel[r] : 0;
      }
      if (all) {
        gemm_add_terms<false>(in, from, inside, step, uint(points), b, terms, kColumns, sums);
      } else if (any) {
        gemm_add_terms<true>(in, from, inside, step, uint(points), b, terms, kColumns, sums);
      }
      terms += long(points) * kColumns;
      line_x += points;
    }
    if (++line_y == params.out_h) line_y = 0, ++image;
  }
  const uint columns_left = metal::min(uint(kColumns), params.columns - column);
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r >= rows) break;
    device float* to =
        out + (long(position.z) * long(rows) + long(first_row + r)) * long(params.columns) + column;
    for (uint j = 0; j < columns_left; ++j) to[j] = sums[r][j];
  }
}

INSTANTIATE_KERNEL("gemm_filter_float", gemm_filter, float, GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS)
INSTANTIATE_KERNEL("gemm_filter_half", gemm_filter, half, GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_filter_bfloat", gemm_filter, bfloat, GEMM_THREAD_ROWS,
                             GEMM_THREAD_COLUMNS))

#if defined(__METAL_CPU__)
INSTANTIATE_KERNEL("gemm_filter_wide_float", gemm_filter, float, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)
INSTANTIATE_KERNEL("gemm_filter_wide_half", gemm_filter, half, GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_filter_wide_bfloat", gemm_filter, bfloat, GEMM_WIDE_ROWS,
                             GEMM_WIDE_COLUMNS))
INSTANTIATE_KERNEL("gemm_filter_middle_float", gemm_filter, float, GEMM_MIDDLE_ROWS,
                   GEMM_MIDDLE_COLUMNS)
INSTANTIATE_KERNEL("gemm_filter_middle_half", gemm_filter, half, GEMM_MIDDLE_ROWS,
                   GEMM_MIDDLE_COLUMNS)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_filter_middle_bfloat", gemm_filter, bfloat, GEMM_MIDDLE_ROWS,
                             GEMM_MIDDLE_COLUMNS))

// As gemm_cached takes a product.
template <typename T>
[[kernel]] void gemm_filter_cached(device const T* in [[buffer(0)]],
                                   device const float* b [[buffer(1)]],
                                   device float* out [[buffer(2)]],
                                   constant GemmParams& params [[buffer(3)]],
                                   constant GemmLines& lines [[buffer(4)]],
                                   uint3 position [[thread_position_in_grid]],
                                   uint3 size [[threads_per_grid]]) {
  const uint rows = params.filter_h * params.filter_w * params.depth;
  const uint first_row = position.x * GEMM_CACHED_ROWS;
  const uint there = metal::min(rows - first_row, uint(GEMM_CACHED_ROWS));
  // The rows by points of the filter, of which the channels follow each other.
  uint row_of[GEMM_CACHED_ROWS], count[GEMM_CACHED_ROWS], points = 0;
  long channel[GEMM_CACHED_ROWS];
  int top[GEMM_CACHED_ROWS], left[GEMM_CACHED_ROWS];
  for (uint row = 0; row < there; row += count[points++]) {
    const uint point = (first_row + row) / params.depth, c = (first_row + row) % params.depth;
    row_of[points] = row;
    count[points] = metal::min(params.depth - c, there - row);
    channel[points] = long(c) * params.a_c;
    top[points] = int(point / params.filter_w * params.dilation_h) - params.pad_top;
    left[points] = int(point % params.filter_w * params.dilation_w) - params.pad_left;
  }
  GemmCachedSums sums(params, position, size);
  float cached[GEMM_CACHED_TERMS * GEMM_CACHED_ROWS] = {};
  const uint first_line = position.z * lines.part;
  const uint terms = (metal::min(first_line + lines.part, lines.all) - first_line) * params.out_w;
  device const float* panels = b + long(first_line) * long(params.out_w) * GEMM_CACHED_COLUMNS;
  uint image = first_line / params.out_h, line_y = first_line % params.out_h, line_x = 0;
  for (uint begin = 0; begin < terms; begin += GEMM_CACHED_TERMS) {
    const uint n = metal::min(uint(GEMM_CACHED_TERMS), terms - begin);
    for (uint k = 0; k < n; ++k) {
      for (uint i = 0; i < points; ++i) {
        const int y = top[i] + int(line_y * params.stride_h);
        const int x = left[i] + int(line_x * params.stride_w);
        thread float* const to = cached + k * GEMM_CACHED_ROWS + row_of[i];
        if (y < 0 || y >= int(params.in_h) || x < 0 || x >= int(params.in_w)) {
          for (uint c = 0; c < count[i]; ++c) to[c] = 0.0f;
          continue;
        }
        device const T* const from = in + long(image) * params.a_image + long(y) * params.a_y +
                                     long(x) * params.a_x + channel[i];
        if (params.a_c == 1) {
          for (uint c = 0; c < count[i]; ++c) to[c] = float(from[c]);
        } else {
          for (uint c = 0; c < count[i]; ++c) to[c] = float(from[long(c) * params.a_c]);
        }
      }
      if (++line_x == params.out_w) {
        line_x = 0;
        if (++line_y == params.out_h) line_y = 0, ++image;
      }
    }
    gemm_add_cached(sums, cached, 1, GEMM_CACHED_ROWS, int(there), n,
                    panels + long(begin) * GEMM_CACHED_COLUMNS, params.b_panel);
  }
  for (uint p = 0; p < sums.panels; ++p) {
    const uint column = (sums.first + p) * GEMM_CACHED_COLUMNS;
    const uint columns = metal::min(params.columns - column, uint(GEMM_CACHED_COLUMNS));
    for (uint r = 0; r < there; ++r) {
      device float* const to =
          out + (long(position.z) * long(rows) + long(first_row + r)) * long(params.columns) +
          long(column);
      for (uint j = 0; j < columns; ++j) {
        to[j] = sums.tiles[p][r / GEMM_CACHED_TILE_ROWS][r % GEMM_CACHED_TILE_ROWS][j];
      }
    }
  }
}

INSTANTIATE_KERNEL("gemm_filter_cached_float", gemm_filter_cached, float)
INSTANTIATE_KERNEL("gemm_filter_cached_half", gemm_filter_cached, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_filter_cached_bfloat", gemm_filter_cached, bfloat))
#endif

// The parts' sum where threads work alone: several neighbouring elements each.
template <typename T>
[[kernel]] void gemm_sum_lines(device const float* parts [[buffer(0)]], device T* out [[buffer(1)]],
                               constant GemmParams& params [[buffer(2)]],
                               uint i [[thread_position_in_grid]]) {
  const long first = long(i) * GEMM_SUM_LINE;
  const uint n = uint(metal::min(params.out_batch - first, long(GEMM_SUM_LINE)));
  float sums[GEMM_SUM_LINE] = {};
  for (uint part = 0; part < params.batch[0]; ++part) {
    device const float* const from = parts + long(part) * params.out_batch + first;
    if (n == GEMM_SUM_LINE) {
      for (uint j = 0; j < GEMM_SUM_LINE; ++j) sums[j] += from[j];
    } else {
      for (uint j = 0; j < n; ++j) sums[j] += from[j];
    }
  }
  for (uint j = 0; j < n; ++j) out[first + j] = T(sums[j]);
}

INSTANTIATE_KERNEL("gemm_sum_lines_float", gemm_sum_lines, float)
INSTANTIATE_KERNEL("gemm_sum_lines_half", gemm_sum_lines, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_sum_lines_bfloat", gemm_sum_lines, bfloat))

INSTANTIATE_KERNEL("gemm_tiles_parts_float", gemm_tiles_parts, float)
INSTANTIATE_KERNEL("gemm_tiles_parts_half", gemm_tiles_parts, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_tiles_parts_bfloat", gemm_tiles_parts, bfloat))

INSTANTIATE_KERNEL("gemm_sum_parts_float", gemm_sum_parts, float)
INSTANTIATE_KERNEL("gemm_sum_parts_half", gemm_sum_parts, half)
IF_BFLOAT(INSTANTIATE_KERNEL("gemm_sum_parts_bfloat", gemm_sum_parts, bfloat))
