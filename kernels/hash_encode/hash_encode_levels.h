// The one place where a level's scale, resolution and index arithmetic are worked out, for every
// device. No TensorFlow.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_LEVELS_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_LEVELS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/hash_encode/hash_encode_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// Those of instant-ngp / tiny-cuda-nn. The first is 1, so neighbours along x often share a cache
// line.
constexpr uint32_t kHashEncodePrimes[7] = {1u,          2654435761u, 805459861u, 3674653429u,
                                           2097192037u, 1434869437u, 2165219737u};

// 2^(level * log2_per_level_scale) * base - 1, each step rounded to float32 as tiny-cuda-nn does.
inline float HashEncodeScale(int level, float log2_per_level_scale, int64_t base) {
  const float power = static_cast<float>(level) * log2_per_level_scale;
  const float growth = static_cast<float>(std::exp2(static_cast<double>(power)));
  const float resolution = growth * static_cast<float>(base);
  return resolution - 1.0f;
}

// Cells are int32 before they wrap, so a finer grid than 2^31 steps has no meaning. Below one cell
// there is no grid.
inline bool HashEncodeScaleIsUsable(float scale) { return scale > -1.0f && scale < 2147483648.0f; }

// `offsets` has n_levels + 1 entries, strictly increasing; every scale is usable.
inline void HashEncodeLevels(int n_dims, int n_levels, float log2_per_level_scale, int64_t base,
                             bool dense, const int32_t* offsets, HashEncodeLevel* levels) {
  for (int l = 0; l < n_levels; ++l) {
    HashEncodeLevel& level = levels[l];
    level = {};
    level.scale = HashEncodeScale(l, log2_per_level_scale, base);
    level.resolution = static_cast<uint32_t>(std::ceil(level.scale)) + 1;
    level.offset = static_cast<uint32_t>(offsets[l]);
    level.size = static_cast<uint32_t>(offsets[l + 1] - offsets[l]);

    // Below 2^63: the loop stops at the first stride above size < 2^31, and a resolution is below
    // 2^32.
    uint64_t stride = 1;
    for (int d = 0; d < n_dims && stride <= level.size; ++d) {
      level.factors[d] = static_cast<uint32_t>(stride);
      stride *= level.resolution;
    }
    level.hashed = !dense && stride > level.size;
    if (level.hashed) {
      for (int d = 0; d < n_dims; ++d) level.factors[d] = kHashEncodePrimes[d];
    }
    const bool power_of_two = (level.size & (level.size - 1)) == 0;
    level.mask = power_of_two ? level.size - 1 : 0;
    const uint64_t reciprocal = (uint64_t{1} << 32) / level.size;
    level.reciprocal = reciprocal > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(reciprocal);
  }
}

// Those of a checked call.
inline void HashEncodeLevels(const OpCall& call, HashEncodeLevel* levels) {
  const int64_t n_levels = call.Size("L");
  int32_t offsets[HASH_ENCODE_MAX_LEVELS + 1];
  std::memcpy(offsets, call.HostValue(call.Index("hashmap_offsets")),
              (n_levels + 1) * sizeof(int32_t));
  HashEncodeLevels(static_cast<int>(call.Size("D")), static_cast<int>(n_levels),
                   call.Float("log2_per_level_scale"), call.Int("resolution_coarsest"),
                   call.Text("grid_kind") == "dense", offsets, levels);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_LEVELS_H_
