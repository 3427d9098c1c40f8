// Products and convolutions on the Metal device: the choice of shader and grid.

#include "kernels/gemm/gemm.h"

#include <algorithm>

#include "kernels/gemm/gemm_groups.h"
#include "kernels/gemm/gemm_plan.h"
#include "kernels/runtime/choice.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {
namespace {

// Below this many rows packing b costs more than it gains.
constexpr int64_t kRowsToPack = 49;

// A group takes a tile's rows by several panels where all of b stays in a cache: the rows of the product are written
// from their beginning to their end, and a is read once.
constexpr int64_t kCachedBytes = 256 << 10, kPanelsTogether = 32;

// The rows and columns that a group packs; no panel is wider.
constexpr int64_t kPackedRows = 16, kPackedColumns = 256;

// For smaller products bringing terms together costs more than it gains.
constexpr int64_t kCachedRows = kRowsToPack, kCachedColumns = 48, kCachedTerms = 64,
                  kCachedDepth = 16;

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

Status LaunchGemm(Encoder& encoder, const char* stem, Grid grid, const GemmParams& params,
                  const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue,
                  const Tensor& out) {
  std::vector<Argument> arguments = {{"a", a}, {"b", b}, {"out", out}, {"params", params}};
  if (epilogue == nullptr) return encoder.Launch({stem, out.dtype()}, grid, arguments);
  Shader shader(stem, "fused", out.dtype());
  AddEpilogue(epilogue, out.dtype(), &arguments, &shader);
  return encoder.Launch(shader, grid, arguments);
}

}  // namespace

void AddEpilogue(const GemmEpilogue* epilogue, DType type, std::vector<Argument>* arguments,
                 Shader* shader) {
  static const GemmEpilogue none;
  if (epilogue == nullptr) epilogue = &none;
  const FusedOps& fused = epilogue->fused;
  const std::vector<const Tensor*>& args = epilogue->args;
  const bool float_channels = fused.channels != EPILOGUE_NO_CHANNELS &&
                              args[0]->dtype() == DType::kFloat && type != DType::kFloat;
  const char* const kChannels[] = {"gamma", "beta", "mean", "variance"};
  for (int i = 0; i < 4; ++i) {
    // Floats or the product's type: a constant tells the shader which.
    arguments->push_back(
        {kChannels[i], i < fused.n_channel_args() ? Value(*args[i]).Untyped() : Value(Nothing())});
  }
  arguments->push_back({"residual", fused.add ? Value(*args.back()) : Value(Nothing())});
  arguments->push_back({"epilogue", epilogue->params});
  shader->Constant(0, fused.channels)
      .Constant(1, fused.add)
      .Constant(2, fused.activation)
      .Constant(3, float_channels);
}

Status AskedForGemm(int* asked) {
  return AskedFor("METAL_OPS_GEMM", {"tiles", "threads", "groups", "warpgroups", "cached"}, asked);
}

Status ChooseTiles(bool fits, bool* tiles) {
  int asked = fits && ThreadgroupsRunAtOnce() ? kAskTiles : kAskThreads;
  RETURN_IF_ERROR(AskedForGemm(&asked));
  // Groups have tiles where they have nothing better.
  *tiles = asked != kAskThreads && asked != kAskCached;
  return Status();
}

ThreadTile ThreadTileOf(int64_t columns) {
  // The narrowest that takes all columns at once, or the widest.
  if (WideVectors() && columns > GEMM_MIDDLE_COLUMNS) {
    return {"gemm_wide", "gemm_filter_wide", GEMM_WIDE_ROWS, GEMM_WIDE_COLUMNS};
  }
  if (WideVectors() && columns > GEMM_THREAD_COLUMNS) {
    return {"gemm_middle", "gemm_filter_middle", GEMM_MIDDLE_ROWS, GEMM_MIDDLE_COLUMNS};
  }
  return {"gemm_threads", "gemm_filter", GEMM_THREAD_ROWS, GEMM_THREAD_COLUMNS};
}

Status ChooseThreadTile(int64_t rows, int64_t columns, int64_t terms, int64_t depth, bool scattered,
                        ThreadTile* tile) {
  const bool large = scattered && rows >= kCachedRows && columns >= kCachedColumns &&
                     terms >= kCachedTerms && depth >= kCachedDepth;
  // Wide tiles read whole cache lines: on a Xeon with AVX-512 gemm_cached took 1.0 to 2.8 times as long in all but
  // four of 37 convolutions and products.
  int asked = large && !WideVectors() ? kAskCached : kAskThreads;
  RETURN_IF_ERROR(AskedForGemm(&asked));
  *tile = ThreadTileOf(columns);
  if (asked == kAskCached) {
    *tile = {"gemm_cached", "gemm_filter_cached", GEMM_CACHED_TILES * GEMM_CACHED_TILE_ROWS,
             GEMM_CACHED_COLUMNS, GEMM_CACHED_PANELS};
  }
  return Status();
}

Grid ThreadGrid(const ThreadTile& tile, int64_t rows, int64_t columns, int64_t products,
                int64_t together) {
  const int64_t down = Pieces(rows, tile.rows), panels = Pieces(columns, tile.columns);
  if (tile.panels == 1) {
    return Grid(down, panels, products)
        .InGroupsOf(together > 1 ? 1 : GEMM_THREAD_GROUP, together, 1);
  }
  int64_t each = std::min(tile.panels, panels);
  while (each > 2 && down * Pieces(panels, each) * products < kBusyThreads) each /= 2;
  return Grid(down, Pieces(panels, each), products).InGroupsOf(1, 1, 1);
}

Status PackGemm(id<TF_MetalStream> stream,
                const std::function<Status(const Shape&, Tensor*)>& floats, const ThreadTile& tile,
                int64_t terms, const GemmParams& params, const Tensor& b, GemmParams* packed,
                Tensor* panels) {
  const int64_t count = Pieces(params.columns, tile.columns);
  // Matrices of b that are used more than once are packed once.
  int64_t matrices = 1;
  *packed = params;
  packed->b_panel = terms * tile.columns;
  for (int d = 0; d < GEMM_BATCH_DIMS; ++d) {
    if (params.b_batch[d] == 0) continue;
    packed->b_batch[d] = matrices * count * packed->b_panel;
    matrices *= params.batch[d];
  }
  RETURN_IF_ERROR(floats({matrices, count, terms, tile.columns}, panels));
  const auto columns = static_cast<uint32_t>(tile.columns);
  // A group takes a part of a page of each of its rows: one panel alone would come to all pages of b, and again for the next.
  const Grid grid =
      Grid(terms, count, matrices).InGroupsOf(kPackedRows, kPackedColumns / columns, 1);
  return EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) {
    return encoder.Launch(
        {"gemm_pack", b.dtype()}, grid,
        {{"b", b}, {"packed", *panels}, {"params", params}, {"panel_columns", columns}});
  });
}

Status PrepareGemm(id<TF_MetalStream> stream,
                   const std::function<Status(const Shape&, Tensor*)>& floats,
                   const GemmParams& params, const Tensor& b, int64_t uses, GemmFactor* factor) {
  // A tile is mostly empty where there are few rows or columns.
  RETURN_IF_ERROR(
      ChooseGemm(params, b.dtype(), params.rows >= 16 && params.columns >= 16, &factor->way));
  factor->params = params;
  factor->b = &b;
  if (factor->way != GemmWay::kThreads) return Status();
  const int64_t terms = GemmDepth(params);
  const bool scattered = b.dtype() != DType::kFloat || params.a_c != 1 || terms > params.depth;
  RETURN_IF_ERROR(
      ChooseThreadTile(params.rows, params.columns, terms, params.depth, scattered, &factor->tile));
  const bool in_place = factor->tile.panels == 1 && b.dtype() == DType::kFloat &&
                        params.b_column == 1 && params.columns >= factor->tile.columns &&
                        params.rows * uses < kRowsToPack;
  if (in_place || terms == 0) return Status();
  factor->b = &factor->panels;
  return PackGemm(stream, floats, factor->tile, terms, params, b, &factor->params, &factor->panels);
}

Status RunGemm(id<TF_MetalStream> stream, const GemmFactor& factor, const Tensor& a,
               const GemmEpilogue* epilogue, const Tensor& out) {
  const GemmParams& params = factor.params;
  if (factor.way != GemmWay::kThreads && factor.way != GemmWay::kTiles) {
    return RunGemmGroups(stream, factor.way, params, a, *factor.b, epilogue, out);
  }
  const int64_t products = GemmProducts(params);
  const ThreadTile& tile = factor.tile;
  const char* stem = tile.product;
  Grid grid(0);
  if (factor.way == GemmWay::kTiles) {
    stem = "gemm_tiles";
    grid = Grid(Pieces(params.rows, GEMM_TILE_ROWS) * GEMM_TILE_THREADS,
                Pieces(params.columns, GEMM_TILE_COLUMNS), products);
  } else {
    const int64_t panels = Pieces(params.columns, tile.columns);
    const int64_t bytes = 4 * panels * tile.columns * GemmDepth(params);
    const int64_t together = bytes <= kCachedBytes ? std::min(panels, kPanelsTogether) : 1;
    grid = ThreadGrid(tile, params.rows, params.columns, products, together);
  }
  return EncodeOn(stream, /*wait=*/false, [&](Encoder& encoder) {
    return LaunchGemm(encoder, stem, grid, params, a, *factor.b, epilogue, out);
  });
}

Status RunGemm(id<TF_MetalStream> stream,
               const std::function<Status(const Shape&, Tensor*)>& floats, const GemmParams& params,
               const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue, const Tensor& out) {
  GemmFactor factor;
  RETURN_IF_ERROR(PrepareGemm(stream, floats, params, b, /*uses=*/1, &factor));
  return RunGemm(stream, factor, a, epilogue, out);
}

}  // namespace metal_ops
