// The inner loops of products and of the ops fused to them, on the CPU: one tile of the product at
// a time, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_SIMD_H_
#define METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_SIMD_H_

#include <cstdint>

namespace metal_ops {

// No tile is larger.
constexpr int kMaxTileRows = 12;
constexpr int kMaxTileColumns = 32;

// Rows and columns of a tile, as this machine's registers hold them.
struct GemmTileSize {
  int rows, columns;
};
GemmTileSize TileSize();

// tile[r][j] = sum over runs q and i < run of a[q * rows + r][i] * b[(q * run + i) * b_row + j].
// `a` points to as many rows as a tile has; `tile` is aligned to 64 bytes. A narrow tile has half
// as many columns; its rows lie where those of a whole one do.
void SumTile(const float* const* a, int64_t runs, int64_t run, const float* b, int64_t b_row,
             float* tile, bool narrow = false);

// tile[r][j] += sum over i < n of a[i * a_row + r] * b[i * b_row + j] for r < rows, for n of a few
// hundred: there are no sums of sums. Reads as many columns of a as a tile has rows.
void AddTileOfColumns(const float* a, int64_t a_row, int64_t n, const float* b, int64_t b_row,
                      int rows, bool narrow, float* tile);

// The ops on a tile of sums: y = (y - mean) scale + shift (whichever are not null, each of as many
// values as a tile has columns), + residual (not null: laid out as the tile), activation.
struct TileEpilogue {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* residual = nullptr;
  uint32_t activation = 0;  // EPILOGUE_...
  float leakyrelu_alpha = 0.0f;
};
void FinishTile(const TileEpilogue& epilogue, int rows, float* tile);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_SIMD_H_
