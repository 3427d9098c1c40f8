// The machine's limit for hash encoding: reading, and adding to, as many rows, with no arithmetic
// around it.
//
// Usage: random_access <points> <corners> <features> <threads> <rows of each level ...>
//
// For a line "<reads> <adds>" on stdin it does that many passes and prints the milliseconds taken.
// A thread works on one level at a time and streams it in first, as the kernels do. Rows come as
// random pairs of neighbours, as corners of a cell mostly do along x; the encoding itself touches a
// few more cache lines.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kBlock = 256;
constexpr int kAhead = 16;

volatile float sink;

struct Level {
  float* rows;
  uint64_t size;
};

// Visits `n` rows of a level, in random pairs.
template <int kFeatures, bool kAdd>
void Visit(const Level& level, int64_t n) {
  if (kAdd) {
    std::memset(level.rows, 0, level.size * kFeatures * sizeof(float));
  } else {
    const volatile float* const rows = level.rows;
    for (uint64_t i = 0; i < level.size * kFeatures; i += 64 / sizeof(float)) sink = rows[i];
  }
  uint32_t picked[kBlock + kAhead] = {};
  float sums[2 * kFeatures] = {};
  uint32_t seed = 1;
  for (int64_t done = 0; done < n; done += 2 * kBlock) {
    for (int i = 0; i < kBlock; ++i) {
      // A Weyl sequence through a multiplicative hash: cheap, vectorisable, and no pair is
      // favoured.
      uint32_t h = (seed + i) * 0x9E3779B9u;
      h = (h ^ (h >> 15)) * 0x85EBCA6Bu;
      h ^= h >> 13;
      picked[i] = static_cast<uint32_t>((uint64_t{h} * (level.size / 2)) >> 32);
    }
    seed += kBlock;
    for (int i = 0; i < kBlock; ++i) {
      __builtin_prefetch(level.rows + uint64_t{picked[i + kAhead]} * 2 * kFeatures, kAdd, 3);
      float* const pair = level.rows + uint64_t{picked[i]} * 2 * kFeatures;
      for (int f = 0; f < 2 * kFeatures; ++f) {
        if (kAdd) {
          pair[f] += 1.0f;
        } else {
          sums[f] += pair[f];
        }
      }
    }
  }
  for (float sum : sums) sink = sum;
}

template <int kFeatures>
void Pass(const std::vector<Level>& levels, int64_t n, int n_threads, bool add) {
  std::atomic<size_t> next{levels.size()};
  const auto work = [&] {
    // From the finest, which is the biggest.
    for (size_t l = next--; l != 0 && l <= levels.size(); l = next--) {
      add ? Visit<kFeatures, true>(levels[l - 1], n) : Visit<kFeatures, false>(levels[l - 1], n);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < n_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "random_access: expected points, corners, features, threads, rows...\n");
    return 2;
  }
  const int64_t visits = std::atoll(argv[1]) * std::atoll(argv[2]);
  const int features = std::atoi(argv[3]);
  const int n_threads = std::atoi(argv[4]);
  const auto pass = features == 1   ? &Pass<1>
                    : features == 2 ? &Pass<2>
                    : features == 4 ? &Pass<4>
                                    : &Pass<8>;
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (int i = 5; i < argc; ++i) {
    sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    total += sizes.back();
  }
  // One for reading, one for adding, as a table and its gradient are.
  const std::unique_ptr<float[]> tables(new float[2 * total * features]());
  std::vector<Level> reads, adds;
  uint64_t first = 0;
  for (uint64_t size : sizes) {
    reads.push_back({tables.get() + first * features, size});
    adds.push_back({tables.get() + (total + first) * features, size});
    first += size;
  }

  int n_reads, n_adds;
  while (std::scanf("%d %d", &n_reads, &n_adds) == 2) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < n_reads; ++i) pass(reads, visits, n_threads, false);
    for (int i = 0; i < n_adds; ++i) pass(adds, visits, n_threads, true);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    std::printf("%.4f\n", taken.count());
    std::fflush(stdout);
  }
}
