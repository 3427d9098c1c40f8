// Fused products on the CPU: b packed into panels, tiles of the product summed in registers, and
// each tile finished while it is in the cache.

#include "kernels/fused_matmul/fused_gemm_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/fused_matmul/fused_gemm_simd.h"
#include "kernels/gemm/fused_call.h"
#include "kernels/gemm/gemm_plan.h"

namespace metal_ops {
namespace {

// Rows of tiles that share a pass over b: few enough for the input's part to stay in the cache.
constexpr int64_t kBlockTiles = 8;
// Runs of the input that are shorter are gathered into longer ones.
constexpr int64_t kShortestRun = 16;
// Below this many rows packing b would cost more than it gains.
constexpr int64_t kRowsToPack = 48;

// A few elements of an array that are not neighbours.
void Gather(const FloatArray& from, int64_t begin, int64_t stride, int64_t n, float* to) {
  if (stride == 1) {
    WidenFloats(from.type, static_cast<const char*>(from.data) + begin * BytesOf(from.type), n, to);
    return;
  }
  if (from.type == FloatType::kFloat) {
    const float* const floats = static_cast<const float*>(from.data) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = floats[i * stride];
    return;
  }
  // Copied together first, and widened at once.
  const uint16_t* const halves = static_cast<const uint16_t*>(from.data) + begin;
  uint16_t piece[256];
  for (int64_t done = 0; done < n; done += 256) {
    const int64_t m = std::min<int64_t>(256, n - done);
    for (int64_t i = 0; i < m; ++i) piece[i] = halves[(done + i) * stride];
    WidenFloats(from.type, piece, m, to + done);
  }
}

void Scatter(const MutableFloatArray& to, int64_t begin, int64_t stride, int64_t n,
             const float* from) {
  if (to.type == FloatType::kFloat) {
    float* const floats = static_cast<float*>(to.data) + begin;
    for (int64_t i = 0; i < n; ++i) floats[i * stride] = from[i];
    return;
  }
  uint16_t* const halves = static_cast<uint16_t*>(to.data) + begin;
  uint16_t piece[kMaxTileColumns];
  NarrowFloats(to.type, from, n, piece);
  for (int64_t i = 0; i < n; ++i) halves[i * stride] = piece[i];
}

// A number per channel, in float32, padded to whole tiles.
struct Channels {
  std::vector<float> mean, scale, shift;
};

Channels ReadChannels(const CpuCall& call, const FusedOps& fused, int64_t columns, int64_t padded) {
  Channels channels;
  const auto read = [&](int arg) {
    std::vector<float> values(padded, 0.0f);
    Gather(call.floats(2 + arg), 0, 1, columns, values.data());
    return values;
  };
  if (fused.channels == EPILOGUE_BIAS) channels.shift = read(0);
  if (fused.channels == EPILOGUE_SCALE_SHIFT || fused.channels == EPILOGUE_BATCH_NORM) {
    channels.scale = read(0);
    channels.shift = read(1);
  }
  if (fused.channels == EPILOGUE_BATCH_NORM) {
    channels.mean = read(2);
    const std::vector<float> variance = read(3);
    for (int64_t c = 0; c < columns; ++c) {
      channels.scale[c] /= std::sqrt(variance[c] + call.Float("epsilon"));
    }
  }
  return channels;
}

// One call.
class FusedGemm {
 public:
  FusedGemm(CpuCall& call, const GemmParams& params)
      : call_(call),
        fused_(FusedOpsOf(call)),
        params_(params),
        a_(call.floats(0)),
        b_(call.floats(1)),
        out_(call.float_out(0)),
        tile_(TileSize()),
        sum_(GemmDepth(params)),
        panels_((params.columns + tile_.columns - 1) / tile_.columns),
        points_(int64_t{params.out_h} * params.out_w) {
    if (fused_.add) residual_ = call.floats(static_cast<int>(call.inputs.size()) - 1);
    channels_ = ReadChannels(call, fused_, params.columns, panels_ * tile_.columns);
    // Rows of the input can be read where they are, or are gathered into rows of sum_ floats.
    gathers_ = a_.type != FloatType::kFloat || params.a_c != 1 ||
               (params.depth < kShortestRun && sum_ > params.depth);
    tile_epilogue_.activation = fused_.activation;
    tile_epilogue_.leakyrelu_alpha = call.Float("leakyrelu_alpha");
  }

  void Run() {
    if (!PackB()) return;
    const int64_t products = GemmProducts(params_);
    const int64_t row_tiles = (params_.rows + tile_.rows - 1) / tile_.rows;
    const int64_t threads = call_.n_threads();
    // Enough tasks for an even end: smaller blocks first, then parts of the columns.
    const int64_t wanted = threads == 1 ? 1 : 4 * threads;
    block_tiles_ = std::clamp<int64_t>(row_tiles * products / wanted, 1, kBlockTiles);
    const int64_t blocks = (row_tiles + block_tiles_ - 1) / block_tiles_;
    int64_t parts = std::clamp<int64_t>(wanted / (blocks * products), 1, panels_);
    const int64_t part_panels = (panels_ + parts - 1) / parts;
    parts = (panels_ + part_panels - 1) / part_panels;
    const int64_t cycles = std::max<int64_t>(
        1, block_tiles_ * tile_.rows * part_panels * tile_.columns * (sum_ / 16 + 2));
    call_.ParallelFor(products * blocks * parts, cycles, [&](int64_t begin, int64_t end) {
      Scratch scratch(*this);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t part = task % parts, block = task / parts % blocks;
        RunBlock(task / parts / blocks, block * block_tiles_,
                 std::min((block + 1) * block_tiles_, row_tiles), part * part_panels,
                 std::min((part + 1) * part_panels, panels_), &scratch);
      }
    });
  }

 private:
  // The scratch memory of one thread.
  struct Scratch {
    explicit Scratch(const FusedGemm& gemm)
        : rows(gemm.gathers_ ? gemm.block_tiles_ * gemm.tile_.rows * gemm.sum_ : 0),
          zeros(gemm.gathers_ ? 0 : gemm.params_.depth, 0.0f),
          runs(gemm.block_tiles_ * gemm.tile_.rows * gemm.Runs()) {}
    std::vector<float> rows;
    std::vector<float> zeros;
    std::vector<const float*> runs;  // [tile][run][row]
  };

  int64_t Runs() const { return gathers_ ? 1 : int64_t{params_.filter_h} * params_.filter_w; }

  // b as panels [sum_, tile_.columns] of float32, or only the last of them where the others can be
  // read in place. False: there is no memory, and that is reported.
  bool PackB() {
    const bool in_place =
        b_.type == FloatType::kFloat && params_.b_column == 1 && params_.rows < kRowsToPack;
    first_packed_ = in_place ? params_.columns / tile_.columns : 0;
    const int64_t packed = panels_ - first_packed_;
    // Where matrices of b are repeated they are packed once.
    int64_t matrices = 1;
    for (int d = 0; d < GEMM_BATCH_DIMS; ++d) {
      matrix_strides_[d] = params_.b_batch[d] == 0 ? 0 : matrices;
      if (params_.b_batch[d] != 0) matrices *= params_.batch[d];
    }
    panel_size_ = sum_ * tile_.columns;
    if (packed == 0 || sum_ == 0) return true;
    packed_b_ = static_cast<float*>(
        call_.Scratch(matrices * packed * panel_size_ * static_cast<int64_t>(sizeof(float))));
    if (packed_b_ == nullptr) return false;
    // Pieces of a panel, so that one wide panel keeps all threads busy.
    constexpr int64_t kPieceRows = 64;
    const int64_t pieces = (sum_ + kPieceRows - 1) / kPieceRows;
    call_.ParallelFor(matrices * packed * pieces, kPieceRows * tile_.columns,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t task = begin; task < end; ++task) {
                          const int64_t piece = task % pieces, panel = task / pieces % packed;
                          int64_t matrix = task / pieces / packed, from = 0;
                          for (int d = 0; d < GEMM_BATCH_DIMS; ++d) {
                            if (matrix_strides_[d] == 0) continue;
                            from += matrix % params_.batch[d] * params_.b_batch[d];
                            matrix /= params_.batch[d];
                          }
                          PackPiece(from, first_packed_ + panel, piece * kPieceRows,
                                    std::min(sum_, (piece + 1) * kPieceRows),
                                    packed_b_ + task / pieces * panel_size_);
                        }
                      });
    return true;
  }

  void PackPiece(int64_t from, int64_t panel, int64_t begin, int64_t end, float* to) const {
    const int64_t column = panel * tile_.columns;
    const int64_t n = std::min<int64_t>(tile_.columns, params_.columns - column);
    from += column * params_.b_column;
    if (params_.b_row == 1) {  // transposed: along its rows
      float line[64];
      std::fill(to + begin * tile_.columns, to + end * tile_.columns, 0.0f);
      for (int64_t j = 0; j < n; ++j) {
        Gather(b_, from + j * params_.b_column + begin, 1, end - begin, line);
        for (int64_t k = begin; k < end; ++k) to[k * tile_.columns + j] = line[k - begin];
      }
      return;
    }
    for (int64_t k = begin; k < end; ++k) {
      float* const row = to + k * tile_.columns;
      Gather(b_, from + k * params_.b_row, params_.b_column, n, row);
      std::fill(row + n, row + tile_.columns, 0.0f);
    }
  }

  // The tiles [first_tile, last_tile) x [first_panel, last_panel) of one product.
  void RunBlock(int64_t product, int64_t first_tile, int64_t last_tile, int64_t first_panel,
                int64_t last_panel, Scratch* scratch) const {
    const GemmOffsets offsets = OffsetsOf(params_, product);
    int64_t matrix = 0;
    for (int d = 0; d < GEMM_BATCH_DIMS; ++d) {
      matrix += product % params_.batch[d] * matrix_strides_[d];
      product /= params_.batch[d];
    }
    const int64_t runs = Runs(), run = gathers_ ? sum_ : params_.depth;
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
      FindRuns(offsets.a, tile * tile_.rows, tile - first_tile, scratch);
    }
    alignas(64) float sums[kMaxTileRows * kMaxTileColumns];
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      const float* b;
      int64_t b_row = tile_.columns;
      if (panel < first_packed_) {
        b = static_cast<const float*>(b_.data) + offsets.b + panel * tile_.columns;
        b_row = params_.b_row;
      } else {
        b = packed_b_ + (matrix * (panels_ - first_packed_) + panel - first_packed_) * panel_size_;
      }
      for (int64_t tile = first_tile; tile < last_tile; ++tile) {
        SumTile(scratch->runs.data() + (tile - first_tile) * runs * tile_.rows, runs, run, b, b_row,
                sums);
        Finish(offsets.out, tile * tile_.rows, panel * tile_.columns, sums);
      }
    }
  }

  // Where the rows of one tile lie in the input; zeros stand for positions outside.
  void FindRuns(int64_t from, int64_t first_row, int64_t slot, Scratch* scratch) const {
    const GemmParams& p = params_;
    for (int r = 0; r < tile_.rows; ++r) {
      // Rows past the last are summed like it, and not stored.
      const int64_t row = std::min(first_row + r, p.rows - 1);
      const int64_t image = from + row / points_ * p.a_image;
      const int64_t top = row % points_ / p.out_w * p.stride_h - p.pad_top;
      const int64_t left = row % p.out_w * p.stride_w - p.pad_left;
      float* gathered = nullptr;
      if (gathers_) {
        gathered = scratch->rows.data() + (slot * tile_.rows + r) * sum_;
        scratch->runs[slot * tile_.rows + r] = gathered;
      }
      for (int64_t fy = 0; fy < p.filter_h; ++fy) {
        const int64_t y = top + fy * p.dilation_h;
        const bool y_inside = y >= 0 && y < p.in_h;
        // Neighbours along x are neighbours in memory: the filter's line is one piece.
        if (gathers_ && p.a_c == 1 && p.a_x == p.depth && p.dilation_w == 1) {
          const int64_t size = int64_t{p.filter_w} * p.depth;
          const int64_t low = std::clamp<int64_t>(-left, 0, p.filter_w);
          const int64_t high = std::clamp<int64_t>(p.in_w - left, low, p.filter_w);
          if (y_inside) {
            std::fill(gathered, gathered + low * p.depth, 0.0f);
            Gather(a_, image + y * p.a_y + (left + low) * p.a_x, 1, (high - low) * p.depth,
                   gathered + low * p.depth);
            std::fill(gathered + high * p.depth, gathered + size, 0.0f);
          } else {
            std::fill(gathered, gathered + size, 0.0f);
          }
          gathered += size;
          continue;
        }
        for (int64_t fx = 0; fx < p.filter_w; ++fx) {
          const int64_t x = left + fx * p.dilation_w;
          const bool inside = y_inside && x >= 0 && x < p.in_w;
          const int64_t at = image + y * p.a_y + x * p.a_x;
          if (!gathers_) {
            scratch->runs[(slot * Runs() + fy * p.filter_w + fx) * tile_.rows + r] =
                inside ? static_cast<const float*>(a_.data) + at : scratch->zeros.data();
            continue;
          }
          if (inside) {
            Gather(a_, at, p.a_c, p.depth, gathered);
          } else {
            std::fill(gathered, gathered + p.depth, 0.0f);
          }
          gathered += p.depth;
        }
      }
    }
  }

  // Epilogue and storing.
  void Finish(int64_t to, int64_t first_row, int64_t column, float* sums) const {
    const int rows = static_cast<int>(std::min<int64_t>(tile_.rows, params_.rows - first_row));
    const int n = static_cast<int>(std::min<int64_t>(tile_.columns, params_.columns - column));
    int64_t begin[kMaxTileRows];
    for (int r = 0; r < rows; ++r) {
      const int64_t row = first_row + r;
      begin[r] = to + row / points_ * params_.out_image + row % points_ * params_.out_point +
                 column * params_.out_column;
    }
    TileEpilogue epilogue = tile_epilogue_;
    if (!channels_.mean.empty()) epilogue.mean = channels_.mean.data() + column;
    if (!channels_.scale.empty()) epilogue.scale = channels_.scale.data() + column;
    if (!channels_.shift.empty()) epilogue.shift = channels_.shift.data() + column;
    alignas(64) float residual[kMaxTileRows * kMaxTileColumns];
    if (fused_.add) {
      for (int r = 0; r < rows; ++r) {
        float* const line = residual + r * tile_.columns;
        Gather(residual_, begin[r], params_.out_column, n, line);
        std::fill(line + n, line + tile_.columns, 0.0f);
      }
      epilogue.residual = residual;
    }
    FinishTile(epilogue, rows, sums);
    if (params_.out_column == 1) {
      for (int r = 0; r < rows; ++r) {
        const float* const line = sums + r * tile_.columns;
        if (out_.type == FloatType::kFloat) {
          std::memcpy(static_cast<float*>(out_.data) + begin[r], line, n * sizeof(float));
        } else {
          NarrowFloats(out_.type, line, n, static_cast<char*>(out_.data) + 2 * begin[r]);
        }
      }
      return;
    }
    for (int r = 0; r < rows; ++r) {
      Scatter(out_, begin[r], params_.out_column, n, sums + r * tile_.columns);
    }
  }

  CpuCall& call_;
  const FusedOps fused_;
  const GemmParams& params_;
  const FloatArray a_, b_;
  const MutableFloatArray out_;
  const GemmTileSize tile_;
  const int64_t sum_;     // terms of a sum
  const int64_t panels_;  // of b, tile_.columns wide
  const int64_t points_;  // of an image
  FloatArray residual_;
  Channels channels_;
  TileEpilogue tile_epilogue_;
  bool gathers_ = false;
  int64_t block_tiles_ = 1;
  float* packed_b_ = nullptr;
  int64_t first_packed_ = 0, panel_size_ = 0;
  int64_t matrix_strides_[GEMM_BATCH_DIMS] = {};
};

}  // namespace

void RunFusedGemm(CpuCall& call, GemmParams (*plan)(OpCall&)) {
  if (call.outputs[0].n_elements == 0) return;
  const GemmParams params = plan(call);
  if (call.shapes.ok()) FusedGemm(call, params).Run();
}

}  // namespace metal_ops
