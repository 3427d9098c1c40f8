// The machine's limit for an op: reading its inputs and writing its results, with next to no
// arithmetic.
//
// Usage: memory_pass <floats read> <floats written> <threads> [processor]
//
// For each line on stdin it does one pass and prints the milliseconds taken, or those that its threads
// had processors.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

// Rounds in which both arrays are gone through side by side.
constexpr int64_t kRounds = 1024;
constexpr int64_t kLanes = 64;

volatile float sink;

void Pass(const float* read, int64_t n_read, float* written, int64_t n_written) {
  float sum[kLanes] = {};
  for (int64_t round = 0; round < kRounds; ++round) {
    int64_t i = n_read * round / kRounds;
    for (const int64_t end = n_read * (round + 1) / kRounds; i + kLanes <= end; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) sum[j] += read[i + j];
    }
    i = n_written * round / kRounds;
    for (const int64_t end = n_written * (round + 1) / kRounds; i + kLanes <= end; i += kLanes) {
      std::memcpy(written + i, sum, sizeof(sum));
    }
  }
  sink = sum[0];
}

double Milliseconds(bool processor) {
  if (processor) {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
  }
  const std::chrono::duration<double, std::milli> now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

}  // namespace

int main(int argc, char** argv) {
  const bool processor = argc == 5 && std::string("processor") == argv[4];
  if (argc != 4 && !processor) {
    std::fprintf(stderr,
                 "memory_pass: expected floats read, floats written, threads, [processor]\n");
    return 2;
  }
  const int64_t n_read = std::atoll(argv[1]), n_written = std::atoll(argv[2]);
  const int n_threads = std::atoi(argv[3]);
  const std::vector<float> read(n_read, 0.0f);
  std::vector<float> written(n_written, 0.0f);

  while (std::getchar() != EOF) {
    const double start = Milliseconds(processor);
    const auto part = [&](int t) {
      const int64_t r = n_read * t / n_threads, w = n_written * t / n_threads;
      Pass(read.data() + r, n_read * (t + 1) / n_threads - r, written.data() + w,
           n_written * (t + 1) / n_threads - w);
    };
    std::vector<std::thread> threads;
    for (int t = 1; t < n_threads; ++t) threads.emplace_back(part, t);
    part(0);
    for (std::thread& thread : threads) thread.join();
    std::printf("%.4f\n", Milliseconds(processor) - start);
    std::fflush(stdout);
  }
}
