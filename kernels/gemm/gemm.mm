// Products and convolutions on the Metal device: which shader, with what grid.

#include "kernels/gemm/gemm.h"

#include "kernels/gemm/gemm_plan.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

// Below this many rows packing b costs more than it gains.
constexpr int64_t kRowsToPack = 32;

// What one thread of gemm_threads or gemm_wide sums.
struct ThreadTile {
  const char* stem;
  int64_t rows, columns;
};
ThreadTile TileOf(const GemmParams& params) {
  // Where more than half of a wide tile would be empty, two of the others are as fast.
  if (WideVectors() && params.columns > GEMM_WIDE_COLUMNS / 2) {
    return {"gemm_wide", GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS};
  }
  return {"gemm_threads", GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS};
}

// Threads of a group, which are neighbours along the rows: enough to be worth a group, and few
// enough for many groups.
constexpr int64_t kGroup = 8;

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

Status LaunchGemm(Encoder& encoder, const char* stem, Grid grid, const GemmParams& params,
                  const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue,
                  const Tensor& out) {
  std::vector<Argument> arguments = {{"a", a}, {"b", b}, {"out", out}, {"params", params}};
  if (epilogue == nullptr) return encoder.Launch({stem, out.dtype()}, grid, arguments);
  const FusedOps& fused = epilogue->fused;
  const std::vector<const Tensor*>& args = epilogue->args;
  const bool float_channels = fused.channels != EPILOGUE_NO_CHANNELS &&
                              args[0]->dtype() == DType::kFloat && out.dtype() != DType::kFloat;
  const char* const kChannels[] = {"gamma", "beta", "mean", "variance"};
  for (int i = 0; i < 4; ++i) {
    // Floats or the product's type: a constant tells the shader which.
    arguments.push_back(
        {kChannels[i], i < fused.n_channel_args() ? Value(*args[i]).Untyped() : Value(Nothing())});
  }
  arguments.push_back({"residual", fused.add ? Value(*args.back()) : Value(Nothing())});
  arguments.push_back({"epilogue", epilogue->params});
  Shader shader(stem, "fused", out.dtype());
  shader.Constant(0, fused.channels)
      .Constant(1, fused.add)
      .Constant(2, fused.activation)
      .Constant(3, float_channels);
  return encoder.Launch(shader, grid, arguments);
}

}  // namespace

Status ChooseTiles(bool fits, bool* tiles) {
  *tiles = fits && ThreadgroupsRunAtOnce();
  return AskedFor("METAL_OPS_GEMM", "tiles", "threads", tiles);
}

Status RunGemm(id<TF_MetalStream> stream,
               const std::function<Status(const Shape&, Tensor*)>& floats, const GemmParams& params,
               const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue, const Tensor& out) {
  bool tiles;
  // A tile is mostly empty where there are few rows or columns.
  RETURN_IF_ERROR(ChooseTiles(params.rows >= 16 && params.columns >= 16, &tiles));
  const int64_t products = GemmProducts(params);
  if (tiles) {
    return EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) {
      const Grid grid(Pieces(params.rows, GEMM_TILE_ROWS) * GEMM_TILE_THREADS,
                      Pieces(params.columns, GEMM_TILE_COLUMNS), products);
      return LaunchGemm(encoder, "gemm_tiles", grid, params, a, b, epilogue, out);
    });
  }
  const ThreadTile tile = TileOf(params);
  const int64_t panels = Pieces(params.columns, tile.columns), sum = GemmDepth(params);
  const Grid grid = Grid(Pieces(params.rows, tile.rows), panels, products).InGroupsOf(kGroup, 1, 1);
  const bool in_place = b.dtype() == DType::kFloat && params.b_column == 1 &&
                        params.columns >= tile.columns && params.rows < kRowsToPack;
  if (in_place || sum == 0) {
    return EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) {
      return LaunchGemm(encoder, tile.stem, grid, params, a, b, epilogue, out);
    });
  }
  // Matrices of b that are used more than once are packed once.
  GemmParams packed = params;
  int64_t matrices = 1;
  packed.b_panel = sum * tile.columns;
  for (int d = 0; d < GEMM_BATCH_DIMS; ++d) {
    if (params.b_batch[d] == 0) continue;
    packed.b_batch[d] = matrices * panels * packed.b_panel;
    matrices *= params.batch[d];
  }
  Tensor panels_of_b;
  RETURN_IF_ERROR(floats({matrices, panels, sum, tile.columns}, &panels_of_b));
  return EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch({"gemm_pack", b.dtype()}, Grid(sum, panels, matrices),
                                   {{"b", b},
                                    {"packed", panels_of_b},
                                    {"params", params},
                                    {"panel_columns", static_cast<uint32_t>(tile.columns)}}));
    return LaunchGemm(encoder, tile.stem, grid, packed, a, panels_of_b, epilogue, out);
  });
}

}  // namespace metal_ops
