// The machine's limit for an optimizer: reading 3 or 4 arrays and writing all but the first back,
// with next to no arithmetic.
//
// Usage: memory_stream <elements> <arrays> <threads>
//
// For each line on stdin it does one pass over float32 arrays and prints the milliseconds taken,
// the slowest thread's.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Arrays = std::vector<std::vector<float>>;

template <bool kFour>
void Pass(Arrays& memory, int64_t begin, int64_t end) {
  const float* __restrict g = memory[0].data();
  float* __restrict x = memory[1].data();
  float* __restrict m = memory[2].data();
  float* __restrict v = memory.back().data();
  for (int64_t i = begin; i < end; ++i) {
    x[i] += g[i];
    m[i] += g[i];
    if (kFour) v[i] += g[i];
  }
}

// Without the time that starting the thread takes.
void Timed(Arrays& memory, int64_t begin, int64_t end, double* ms) {
  const auto start = std::chrono::steady_clock::now();
  memory.size() == 4 ? Pass<true>(memory, begin, end) : Pass<false>(memory, begin, end);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  *ms = taken.count();
}

}  // namespace

int main(int argc, char** argv) {
  const int n_arrays = argc == 4 ? std::atoi(argv[2]) : 0;
  if (n_arrays != 3 && n_arrays != 4) {
    std::fprintf(stderr, "memory_stream: expected elements, arrays (3 or 4), threads\n");
    return 2;
  }
  const int64_t n = std::atoll(argv[1]);
  const int n_threads = std::atoi(argv[3]);
  Arrays memory(n_arrays, std::vector<float>(n, 1.0f));

  while (std::getchar() != EOF) {
    std::vector<double> ms(n_threads);
    std::vector<std::thread> threads;
    for (int t = 1; t < n_threads; ++t) {
      threads.emplace_back(Timed, std::ref(memory), n * t / n_threads, n * (t + 1) / n_threads,
                           &ms[t]);
    }
    Timed(memory, 0, n / n_threads, &ms[0]);
    for (std::thread& thread : threads) thread.join();
    std::printf("%.4f\n", *std::max_element(ms.begin(), ms.end()));
    std::fflush(stdout);
  }
}
