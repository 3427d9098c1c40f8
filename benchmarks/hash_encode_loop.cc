// Hash encoding as a plain C++ loop: the peer of the compiled shader. The algorithm is the shader's
// (kernels/hash_encode/hash_grid.h), written the way one writes C++, with nothing vectorised by
// hand. Reads lines: "run" answers with milliseconds, "dump <file>" writes the encoding. Argument:
// number of threads.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/hash_encode_inputs.h"

namespace {

using Inputs = metal_ops::HashEncodeInputs;
constexpr int D = Inputs::kDims, F = Inputs::kFeatures, L = Inputs::kLevels;

// Points first <= i < last of one level.
void Encode(const float* points, const float* table, const HashEncodeLevel& level, int l,
            uint32_t first, uint32_t last, float* outputs) {
  const float* rows = table + size_t{level.offset} * F;
  for (uint32_t i = first; i < last; ++i) {
    uint32_t low[D], high[D];
    float weight[D];
    for (int d = 0; d < D; ++d) {
      const float position = std::fma(points[size_t{i} * D + d], level.scale, 0.5f);
      const float cell = std::floor(position);
      weight[d] = position - cell;
      low[d] = static_cast<uint32_t>(static_cast<int32_t>(cell)) * level.factors[d];
      high[d] = low[d] + level.factors[d];
    }
    float sums[F] = {};
    for (int c = 0; c < 1 << D; ++c) {
      uint32_t row = 0;
      float w = 1.0f;
      for (int d = 0; d < D; ++d) {
        const bool upper = (c >> d) & 1;
        const uint32_t term = upper ? high[d] : low[d];
        row = level.hashed ? row ^ term : row + term;
        w *= upper ? weight[d] : 1.0f - weight[d];
      }
      if (level.mask != 0) {
        row &= level.mask;
      } else {
        row %= level.size;
      }
      for (int f = 0; f < F; ++f) sums[f] += w * rows[size_t{row} * F + f];
    }
    for (int f = 0; f < F; ++f) outputs[(size_t{i} * L + l) * F + f] = sums[f];
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int n_threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const Inputs inputs;
  std::vector<float> outputs(size_t{Inputs::kPoints} * L * F);
  auto run = [&] {
    constexpr uint32_t kPiece = 8192;
    constexpr uint32_t kPieces = Inputs::kPoints / kPiece;
    std::atomic<uint32_t> next{0};
    auto work = [&] {
      for (uint32_t piece; (piece = next++) < kPieces * L;) {
        const int l = static_cast<int>(piece / kPieces);
        const uint32_t first = piece % kPieces * kPiece;
        Encode(inputs.points.data(), inputs.table.data(), inputs.levels[l], l, first,
               first + kPiece, outputs.data());
      }
    };
    std::vector<std::thread> others;
    for (int t = 1; t < n_threads; ++t) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
  };
  for (std::string line; std::getline(std::cin, line);) {
    if (line.rfind("dump ", 0) == 0) {
      run();
      std::cout << metal_ops::WriteFloats(line.substr(5), outputs.data(), outputs.size())
                << std::endl;
    } else {
      const auto start = std::chrono::steady_clock::now();
      run();
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      std::cout << took.count() << std::endl;
    }
  }
  return 0;
}
