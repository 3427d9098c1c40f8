// Encodes products and convolutions (kernels/gemm/gemm.metal.h) on the Metal device. Any library
// whose metallib instantiates the shaders can use it.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_H_

#include <functional>
#include <vector>

#include "kernels/gemm/fused_ops.h"
#include "kernels/gemm/gemm_params.h"
#include "kernels/runtime/encoder.h"

namespace metal_ops {

// How a product is multiplied: by threads on their own (gemm.metal.h) or in tiles (gemm_tile.metal.h),
// for any convolution; or, plain products and most convolutions, by groups (gemm_groups.h).
enum class GemmWay { kThreads, kTiles, kFew, kBlocks, kWarpgroups, kConv };

// The choices of METAL_OPS_GEMM, in place of the one that follows from device and sizes.
enum GemmAsked { kAskTiles, kAskThreads, kAskGroups, kAskWarpgroups, kAskCached };
Status AskedForGemm(int* asked);

// Whether the matrix unit reads threadgroup memory itself: only such GPUs have as much of it for one threadgroup.
bool HasWarpgroupUnit(size_t memory);

// The ops fused to a product. `args` are the op's, in order.
struct GemmEpilogue {
  FusedOps fused;
  EpilogueParams params = {};
  std::vector<const Tensor*> args;
};

// The arguments of a fused shader for it; without an epilogue they say so.
void AddEpilogue(const GemmEpilogue* epilogue, DType type, std::vector<Argument>* arguments,
                 Shader* shader);

// Whether the shaders that work in tiles are to be used, where `fits` says that they would be of
// use: the device decides, or METAL_OPS_GEMM.
Status ChooseTiles(bool fits, bool* tiles);

// A thread's tile where threads work alone, and the width of the panels of b that it reads.
struct ThreadTile {
  const char* product;  // the shaders
  const char* filter;
  int64_t rows, columns;
  // Panels that a thread takes at most, where it takes several.
  int64_t panels = 1;
};
ThreadTile ThreadTileOf(int64_t columns);
// The same, or several such tiles if the product is large enough: `depth` terms at a time follow each other in memory.
// `scattered`: they are not float32, or not one run a row.
Status ChooseThreadTile(int64_t rows, int64_t columns, int64_t terms, int64_t depth, bool scattered,
                        ThreadTile* tile);

// Threads that keep some cores busy, where each takes several panels.
constexpr int64_t kBusyThreads = 16;

// The threads of a product where they work alone. `together`: panels that are one group's, of threads of one panel each.
Grid ThreadGrid(const ThreadTile& tile, int64_t rows, int64_t columns, int64_t products,
                int64_t together);

// b as float32 in panels of `tile.columns`: element (k, j) of a panel is its k * tile.columns + j, and
// k < terms. `packed` is `params` for them. `floats` gives temporary memory.
Status PackGemm(id<TF_MetalStream> stream,
                const std::function<Status(const Shape&, Tensor*)>& floats, const ThreadTile& tile,
                int64_t terms, const GemmParams& params, const Tensor& b, GemmParams* packed,
                Tensor* panels);

// b as the shaders read it, for `uses` products of the same sizes. It has to live as long as they are
// encoded, and so has the tensor that it was made of.
struct GemmFactor {
  GemmWay way = GemmWay::kThreads;
  ThreadTile tile = {};
  GemmParams params = {};
  const Tensor* b = nullptr;
  Tensor panels;
};
Status PrepareGemm(id<TF_MetalStream> stream,
                   const std::function<Status(const Shape&, Tensor*)>& floats,
                   const GemmParams& params, const Tensor& b, int64_t uses, GemmFactor* factor);
Status RunGemm(id<TF_MetalStream> stream, const GemmFactor& factor, const Tensor& a,
               const GemmEpilogue* epilogue, const Tensor& out);

// out = a b, finished by the epilogue if there is one. No tensor of these is empty but where the
// sums have no terms; `floats` gives temporary memory. METAL_OPS_GEMM=tiles, =threads, =cached,
// =groups or =warpgroups chooses the shaders, for tests and measurements; otherwise the sizes and the device decide.
Status RunGemm(id<TF_MetalStream> stream,
               const std::function<Status(const Shape&, Tensor*)>& floats, const GemmParams& params,
               const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue, const Tensor& out);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_H_
