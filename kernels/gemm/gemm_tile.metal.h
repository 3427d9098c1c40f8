// Products in threadgroup tiles: GEMM_TILE_DEPTH terms of a GEMM_TILE_ROWS x GEMM_TILE_COLUMNS tile
// are brought into threadgroup memory, where four simdgroups multiply them as 8x8 matrices, each a
// quarter of the tile. Sums stay in registers. The lane of an element of a matrix is not
// documented, so for the epilogue each matrix goes through threadgroup memory.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_TILE_METAL_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_TILE_METAL_H_

#include <metal_stdlib>

#include "kernels/gemm/gemm.metal.h"

// Rows in threadgroup memory are a little longer, so that a column is spread over the banks.
#define GEMM_TILE_A_LINE (GEMM_TILE_DEPTH + 8)
#define GEMM_TILE_B_LINE (GEMM_TILE_COLUMNS + 8)

// Matrices a simdgroup has, along rows and along columns.
#define GEMM_TILE_FRAGMENTS 4
static_assert(GEMM_TILE_ROWS == 2 * 8 * GEMM_TILE_FRAGMENTS, "two simdgroups cover the rows");
static_assert(GEMM_TILE_COLUMNS == 2 * 8 * GEMM_TILE_FRAGMENTS, "and two the columns");
static_assert(GEMM_TILE_ROWS * GEMM_TILE_DEPTH == 8 * GEMM_TILE_THREADS,
              "8 elements of a a thread");
static_assert(GEMM_TILE_COLUMNS * GEMM_TILE_DEPTH == 8 * GEMM_TILE_THREADS, "and 8 of b");

// Sums that a simdgroup has in threadgroup memory: a column of its matrices.
#define GEMM_TILE_SUMS (64 * GEMM_TILE_FRAGMENTS)

template <typename T, typename Out, typename Epilogue>
inline void gemm_group_tile(device const T* a, device const T* b, device Out* out,
                            constant GemmParams& params, Epilogue epilogue, threadgroup T* a_tile,
                            threadgroup T* b_tile, threadgroup float* sum_tiles, uint3 group,
                            uint thread_, uint simdgroup, uint lane) {
  const GemmOffsets offsets = gemm_offsets(params, group.z);
  const long first_row = long(group.x) * GEMM_TILE_ROWS;
  const uint first_column = group.y * GEMM_TILE_COLUMNS;
  uint terms = params.filter_h * params.filter_w * params.depth;
  if (params.split_terms != 0) {
    terms = metal::min(terms, params.split_terms - group.z * params.depth);
  }

  // Each thread brings 8 neighbouring terms of one row of a, and 8 columns of one row of b.
  const uint a_row = thread_ / 2, a_term = thread_ % 2 * 8;
  const uint b_term = thread_ / 8, b_column = thread_ % 8 * 8;
  const bool row_there = first_row + a_row < params.rows;
  const GemmRow row = gemm_row(params, metal::min(first_row + a_row, params.rows - 1));
  device const T* image = a + offsets.a + row.image;

  metal::simdgroup_matrix<float, 8, 8> sums[GEMM_TILE_FRAGMENTS][GEMM_TILE_FRAGMENTS];
  for (uint i = 0; i < GEMM_TILE_FRAGMENTS; ++i) {
    for (uint j = 0; j < GEMM_TILE_FRAGMENTS; ++j) {
      sums[i][j] = metal::simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  const uint row_of_group = simdgroup / 2 * 8 * GEMM_TILE_FRAGMENTS;
  const uint column_of_group = simdgroup % 2 * 8 * GEMM_TILE_FRAGMENTS;

  for (uint begin = 0; begin < terms; begin += GEMM_TILE_DEPTH) {
    uint term = begin + a_term;
    uint c = term % params.depth, point = term / params.depth;
    for (uint i = 0; i < 8; ++i, ++term) {
      T value = T(0.0f);
      if (row_there && term < terms) {
        const int y = row.top + int(point / params.filter_w * params.dilation_h);
        const int x = row.left + int(point % params.filter_w * params.dilation_w);
        if (y >= 0 && y < int(params.in_h) && x >= 0 && x < int(params.in_w)) {
          value = image[long(y) * params.a_y + long(x) * params.a_x + long(c) * params.a_c];
        }
      }
      a_tile[a_row * GEMM_TILE_A_LINE + a_term + i] = value;
      if (++c == params.depth) c = 0, ++point;
    }
    device const T* line = b + offsets.b + long(begin + b_term) * params.b_row;
    for (uint i = 0; i < 8; ++i) {
      const uint column = first_column + b_column + i;
      T value = T(0.0f);
      if (begin + b_term < terms && column < params.columns) {
        value = line[long(column) * params.b_column];
      }
      b_tile[b_term * GEMM_TILE_B_LINE + b_column + i] = value;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    for (uint k = 0; k < GEMM_TILE_DEPTH; k += 8) {
      metal::simdgroup_matrix<T, 8, 8> left[GEMM_TILE_FRAGMENTS], right[GEMM_TILE_FRAGMENTS];
      for (uint i = 0; i < GEMM_TILE_FRAGMENTS; ++i) {
        metal::simdgroup_load(left[i], a_tile + (row_of_group + 8 * i) * GEMM_TILE_A_LINE + k,
                              GEMM_TILE_A_LINE);
        metal::simdgroup_load(right[i], b_tile + k * GEMM_TILE_B_LINE + column_of_group + 8 * i,
                              GEMM_TILE_B_LINE);
      }
      for (uint i = 0; i < GEMM_TILE_FRAGMENTS; ++i) {
        for (uint j = 0; j < GEMM_TILE_FRAGMENTS; ++j) {
          metal::simdgroup_multiply_accumulate(sums[i][j], left[i], right[j], sums[i][j]);
        }
      }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }

  // A column of matrices at a time, of which a lane takes one column and every fourth row.
  threadgroup float* sum_tile = sum_tiles + simdgroup * GEMM_TILE_SUMS;
  const uint lane_row = lane / 8, lane_column = lane % 8;
  for (uint j = 0; j < GEMM_TILE_FRAGMENTS; ++j) {
    for (uint i = 0; i < GEMM_TILE_FRAGMENTS; ++i) {
      metal::simdgroup_store(sums[i][j], sum_tile + i * 64, 8);
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    const uint column = first_column + column_of_group + 8 * j + lane_column;
    if (column < params.columns) {
      const typename Epilogue::Column channel = epilogue.column(column);
      for (uint r = lane_row; r < 8 * GEMM_TILE_FRAGMENTS; r += 4) {
        const long to_row = first_row + row_of_group + r;
        if (to_row >= params.rows) break;
        const long at =
            offsets.out + gemm_row(params, to_row).out + long(column) * params.out_column;
        out[at] = Out(epilogue(sum_tile[r * 8 + lane_column], channel, at));
      }
    }
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(GEMM_TILE_THREADS)]] void gemm_tiles(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device T* out [[buffer(2)]],
    constant GemmParams& params [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
    uint thread_ [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T a_tile[GEMM_TILE_ROWS * GEMM_TILE_A_LINE];
  threadgroup T b_tile[GEMM_TILE_DEPTH * GEMM_TILE_B_LINE];
  threadgroup float sum_tiles[4 * GEMM_TILE_SUMS];
  gemm_group_tile(a, b, out, params, NoEpilogue(), a_tile, b_tile, sum_tiles, group, thread_,
                  simdgroup, lane);
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(GEMM_TILE_THREADS)]] void gemm_tiles_fused(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device T* out [[buffer(2)]],
    constant GemmParams& params [[buffer(3)]], device const T* gamma [[buffer(4)]],
    device const T* beta [[buffer(5)]], device const T* mean [[buffer(6)]],
    device const T* variance [[buffer(7)]], device const T* residual [[buffer(8)]],
    constant EpilogueParams& epilogue [[buffer(9)]], uint3 group [[threadgroup_position_in_grid]],
    uint thread_ [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T a_tile[GEMM_TILE_ROWS * GEMM_TILE_A_LINE];
  threadgroup T b_tile[GEMM_TILE_DEPTH * GEMM_TILE_B_LINE];
  threadgroup float sum_tiles[4 * GEMM_TILE_SUMS];
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  gemm_group_tile(a, b, out, params, fused, a_tile, b_tile, sum_tiles, group, thread_, simdgroup,
                  lane);
}

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_TILE_METAL_H_
