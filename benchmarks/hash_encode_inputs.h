// The same points, table and levels for the programs that benchmarks/cases/hostmetal.py compares,
// made without a file.
#ifndef METAL_OPS_BENCHMARKS_HASH_ENCODE_INPUTS_H_
#define METAL_OPS_BENCHMARKS_HASH_ENCODE_INPUTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/hash_encode/hash_encode_levels.h"

namespace metal_ops {

// 16 levels of 2 features from 16 to 512, tables of 2^19 rows, 3 dimensions: the usual NeRF.
struct HashEncodeInputs {
  static constexpr int kDims = 3, kLevels = 16, kFeatures = 2;
  static constexpr uint32_t kPoints = 65536;

  HashEncodeLevel levels[kLevels];
  std::vector<float> points, table;

  HashEncodeInputs() {
    const float log2_scale = std::log2(512.0f / 16.0f) / (kLevels - 1);
    std::vector<int32_t> offsets(1, 0);
    for (int l = 0; l < kLevels; ++l) {
      const double resolution = std::ceil(HashEncodeScale(l, log2_scale, 16)) + 1;
      const double dense = std::ceil(resolution * resolution * resolution / 8) * 8;
      offsets.push_back(offsets.back() + static_cast<int32_t>(std::min(dense, double(1 << 19))));
    }
    HashEncodeLevels(kDims, kLevels, log2_scale, 16, false, offsets.data(), levels);
    uint32_t state = 1;
    auto uniform = [&state] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) * (1.0f / (1 << 24));
    };
    points.resize(size_t{kPoints} * kDims);
    for (float& p : points) p = uniform();
    table.resize(static_cast<size_t>(offsets.back()) * kFeatures);
    for (float& t : table) t = uniform() - 0.5f;
  }
};

inline bool WriteFloats(const std::string& path, const float* values, size_t count) {
  FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return false;
  const bool whole = std::fwrite(values, sizeof(float), count, file) == count;
  return std::fclose(file) == 0 && whole;
}

}  // namespace metal_ops

#endif  // METAL_OPS_BENCHMARKS_HASH_ENCODE_INPUTS_H_
