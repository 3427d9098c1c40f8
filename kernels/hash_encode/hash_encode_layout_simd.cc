// Between [points, levels * features] of the op's type and float32 levels.

#include <algorithm>
#include <cstring>

#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hash_encode/hash_encode_layout_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/hash_encode/hash_encode_rows-inl.h"
#include "kernels/hash_encode/hash_encode_simd.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// Floats of a tile of points that is turned around in the L1 cache. At least one point of the
// widest encoding.
constexpr size_t kTile = 4096;
// Outputs above this are written past the caches: they would push out more than they keep.
constexpr int64_t kStreamBytes = int64_t{16} << 20;

// Copies past the caches.
void StreamOut(const float* from, int64_t n, float* to) {
  const DF df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  const uintptr_t mask = hn::Lanes(df) * sizeof(float) - 1;
  for (; i < n && (reinterpret_cast<uintptr_t>(to + i) & mask) != 0; ++i) to[i] = from[i];
  for (; i + lanes <= n; i += lanes) hn::Stream(hn::LoadU(df, from + i), df, to + i);
  for (; i < n; ++i) to[i] = from[i];
}

// Points [first, first + n) between a tile [n, n_levels * F] and staged levels.
template <int64_t F>
void GatherTile(const HashEncodeCall& call, const Staged& staged, int64_t first, int64_t n,
                float* tile) {
  for (int64_t l = 0; l < call.n_levels; ++l) {
    const float* const level = staged.At(call, l, first);
    for (int64_t p = 0; p < n; ++p) {
      std::memcpy(tile + (p * call.n_levels + l) * F, level + p * F, F * sizeof(float));
    }
  }
}

template <int64_t F>
void ScatterTile(const HashEncodeCall& call, const Staged& staged, int64_t first, int64_t n,
                 const float* tile) {
  for (int64_t l = 0; l < call.n_levels; ++l) {
    float* const level = staged.At(call, l, first);
    for (int64_t p = 0; p < n; ++p) {
      std::memcpy(level + p * F, tile + (p * call.n_levels + l) * F, F * sizeof(float));
    }
  }
}

void StagedToOutputsT(const HashEncodeCall& call, const Staged& staged, PointRange range,
                      void* outputs) {
  HWY_ALIGN float tile[kTile];
  const int64_t width = call.n_levels * call.n_features;
  const int64_t tile_points = static_cast<int64_t>(kTile) / width;
  const bool stream = call.n_points * width * BytesOf(call.type) > kStreamBytes;
  const auto gather = call.n_features == 1   ? &GatherTile<1>
                      : call.n_features == 2 ? &GatherTile<2>
                      : call.n_features == 4 ? &GatherTile<4>
                                             : &GatherTile<8>;
  for (int64_t first = range.begin; first < range.end; first += tile_points) {
    const int64_t n = std::min(tile_points, range.end - first);
    gather(call, staged, first, n, tile);
    char* const to = static_cast<char*>(outputs) + first * width * BytesOf(call.type);
    if (call.type != FloatType::kFloat) {
      NarrowFloats(call.type, tile, n * width, to);
    } else if (stream) {
      StreamOut(tile, n * width, reinterpret_cast<float*>(to));
    } else {
      std::memcpy(to, tile, n * width * sizeof(float));
    }
  }
  if (stream) hwy::FlushStream();
}

void IncomingToStagedT(const HashEncodeCall& call, PointRange range, const Staged& staged) {
  HWY_ALIGN float tile[kTile];
  const int64_t width = call.n_levels * call.n_features;
  const int64_t tile_points = static_cast<int64_t>(kTile) / width;
  const auto scatter = call.n_features == 1   ? &ScatterTile<1>
                       : call.n_features == 2 ? &ScatterTile<2>
                       : call.n_features == 4 ? &ScatterTile<4>
                                              : &ScatterTile<8>;
  for (int64_t first = range.begin; first < range.end; first += tile_points) {
    const int64_t n = std::min(tile_points, range.end - first);
    WidenFloats(call.type,
                static_cast<const char*>(call.d_outputs) + first * width * BytesOf(call.type),
                n * width, tile);
    scatter(call, staged, first, n, tile);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(StagedToOutputsT);
HWY_EXPORT(IncomingToStagedT);

void StagedToOutputs(const HashEncodeCall& call, const Staged& staged, PointRange range,
                     void* outputs) {
  HWY_DYNAMIC_DISPATCH(StagedToOutputsT)(call, staged, range, outputs);
}

void IncomingToStaged(const HashEncodeCall& call, PointRange range, const Staged& staged) {
  HWY_DYNAMIC_DISPATCH(IncomingToStagedT)(call, range, staged);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
