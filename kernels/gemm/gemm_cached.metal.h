// The product of gemm.metal.h where threads work alone and long sums would not stay in a cache: a thread takes as many rows
// as make it worth to bring a few terms of each together, in float32, as they lie in no tensor: with zeros outside of
// images, types converted, strides gone. Several panels of b go over them, tile by tile, before the next terms.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_CACHED_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_CACHED_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/gemm.metal.h"

// From one row's terms to the next one's: not a power of 2, at whose multiples a cache keeps few lines.
#define GEMM_CACHED_LINE (GEMM_CACHED_TERMS + 16)
#define GEMM_CACHED_ROWS (GEMM_CACHED_TILES * GEMM_CACHED_TILE_ROWS)

// Adds `n` terms of a tile's rows, which are `a_row` apart, and their terms `a_term`.
template <int kRows, int kColumns>
inline void gemm_add_cached(thread const float* a, int a_row, int a_term, uint n,
                            device const float* b, thread float (&sums)[kRows][kColumns]) {
  // Never indexed by a variable: they live in registers. Long sums are more exact in parts, too.
  float local[kRows][kColumns] = {};
  for (uint k = 0; k < n; ++k, a += a_term, b += kColumns) {
    float line[kColumns];
    for (int j = 0; j < kColumns; ++j) line[j] = b[j];
    for (int r = 0; r < kRows; ++r) {
      const float value = a[r * a_row];
      for (int j = 0; j < kColumns; ++j) local[r][j] = metal::fma(value, line[j], local[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) sums[r][j] += local[r][j];
  }
}

// The sums of a thread, and the panels of b that are its own: as many as there are for each thread of the grid.
struct GemmCachedSums {
  float tiles[GEMM_CACHED_PANELS][GEMM_CACHED_TILES][GEMM_CACHED_TILE_ROWS][GEMM_CACHED_COLUMNS];
  uint first, panels;

  GemmCachedSums(constant GemmParams& params, uint3 position, uint3 size) {
    const uint all = (params.columns + GEMM_CACHED_COLUMNS - 1) / GEMM_CACHED_COLUMNS;
    const uint each = (all + size.y - 1) / size.y;
    first = position.y * each;
    panels = first < all ? metal::min(each, all - first) : 0;
    for (uint p = 0; p < panels; ++p) {
      for (int t = 0; t < GEMM_CACHED_TILES; ++t) {
        for (int r = 0; r < GEMM_CACHED_TILE_ROWS; ++r) {
          for (int j = 0; j < GEMM_CACHED_COLUMNS; ++j) tiles[p][t][r][j] = 0.0f;
        }
      }
    }
  }
};

// `n` terms of the cached rows by panels that begin at `b`.
inline void gemm_add_cached(thread GemmCachedSums& sums, thread const float* cached, int a_row,
                            int a_term, int rows, uint n, device const float* b, long b_panel) {
  for (uint p = 0; p < sums.panels; ++p) {
    for (int t = 0; t * GEMM_CACHED_TILE_ROWS < rows; ++t) {
      gemm_add_cached(cached + t * GEMM_CACHED_TILE_ROWS * a_row, a_row, a_term, n,
                      b + long(sums.first + p) * b_panel, sums.tiles[p][t]);
    }
  }
}

// Grid: threads of GEMM_CACHED_ROWS rows, of up to GEMM_CACHED_PANELS panels each, products. b is packed (gemm_pack).
template <typename T, typename Epilogue>
inline void gemm_cached_tiles(device const T* a, device const float* b, device T* out,
                              constant GemmParams& params, Epilogue epilogue, uint3 position,
                              uint3 size) {
  const GemmOffsets offsets = gemm_offsets(params, position.z);
  const long first_row = long(position.x) * GEMM_CACHED_ROWS;
  const int there = int(metal::min(params.rows - first_row, long(GEMM_CACHED_ROWS)));
  GemmRow rows[GEMM_CACHED_ROWS];
  for (int r = 0; r < GEMM_CACHED_ROWS; ++r) {
    rows[r] = gemm_row(params, metal::min(first_row + r, params.rows - 1));
  }
  GemmCachedSums sums(params, position, size);
  float cached[GEMM_CACHED_ROWS * GEMM_CACHED_LINE];
  const uint terms = params.filter_h * params.filter_w * params.depth;
  uint c = 0;
  int fy = 0, fx = 0;
  for (uint begin = 0; begin < terms; begin += GEMM_CACHED_TERMS) {
    const uint n = metal::min(uint(GEMM_CACHED_TERMS), terms - begin);
    for (uint k = 0; k < n;) {
      const uint count = metal::min(params.depth - c, n - k);
      long from[GEMM_CACHED_ROWS];
      bool all = true;
      for (int r = 0; r < GEMM_CACHED_ROWS; ++r) {
        const int y = rows[r].top + fy * int(params.dilation_h);
        const int x = rows[r].left + fx * int(params.dilation_w);
        const bool inside = y >= 0 && y < int(params.in_h) && x >= 0 && x < int(params.in_w);
        from[r] = inside ? offsets.a + rows[r].image + long(y) * params.a_y + long(x) * params.a_x +
                               long(c) * params.a_c
                         : -1;
        all = all && inside;
      }
      if (params.a_c != 1 && all) {  // neighbouring rows are nearer than neighbouring terms
        for (uint j = 0; j < count; ++j) {
          const long at = long(j) * params.a_c;
          for (int r = 0; r < GEMM_CACHED_ROWS; ++r) {
            cached[uint(r) * GEMM_CACHED_LINE + k + j] = float(a[from[r] + at]);
          }
        }
      } else {
        for (int r = 0; r < GEMM_CACHED_ROWS; ++r) {
          thread float* const to = cached + uint(r) * GEMM_CACHED_LINE + k;
          if (from[r] < 0) {
            for (uint j = 0; j < count; ++j) to[j] = 0.0f;
          } else if (params.a_c == 1) {
            for (uint j = 0; j < count; ++j) to[j] = float(a[from[r] + j]);
          } else {
            for (uint j = 0; j < count; ++j) to[j] = float(a[from[r] + long(j) * params.a_c]);
          }
        }
      }
      k += count;
      c += count;
      if (c == params.depth) {
        c = 0;
        if (++fx == int(params.filter_w)) fx = 0, ++fy;
      }
    }
    gemm_add_cached(sums, cached, GEMM_CACHED_LINE, 1, there, n,
                    b + offsets.b + long(begin) * GEMM_CACHED_COLUMNS, params.b_panel);
  }
  for (uint p = 0; p < sums.panels; ++p) {
    const uint column = (sums.first + p) * GEMM_CACHED_COLUMNS;
    for (int t = 0; t * GEMM_CACHED_TILE_ROWS < there; ++t) {
      const int row = t * GEMM_CACHED_TILE_ROWS;
      gemm_put_tile(sums.tiles[p][t], rows + row, first_row + row, column, column, offsets.out, out,
                    params, epilogue);
    }
  }
}

template <typename T>
[[kernel]] void gemm_cached(device const T* a [[buffer(0)]], device const float* b [[buffer(1)]],
                            device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
                            uint3 position [[thread_position_in_grid]],
                            uint3 size [[threads_per_grid]]) {
  gemm_cached_tiles(a, b, out, params, NoEpilogue(), position, size);
}

template <typename T>
[[kernel]] void gemm_cached_fused(
    device const T* a [[buffer(0)]], device const float* b [[buffer(1)]],
    device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
    device const T* gamma [[buffer(4)]], device const T* beta [[buffer(5)]],
    device const T* mean [[buffer(6)]], device const T* variance [[buffer(7)]],
    device const T* residual [[buffer(8)]], constant EpilogueParams& epilogue [[buffer(9)]],
    uint3 position [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  gemm_cached_tiles(a, b, out, params, fused, position, size);
}

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_CACHED_METAL_H_
