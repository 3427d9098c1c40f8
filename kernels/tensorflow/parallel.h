// Sharing work out on TensorFlow's intra-op pool.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_PARALLEL_H_
#define METAL_OPS_KERNELS_TENSORFLOW_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/synchronization/notification.h"
#include "kernels/tensorflow/team.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {

inline int64_t NumThreads(tensorflow::OpKernelContext* context) {
  return context->device()->tensorflow_cpu_worker_threads()->num_threads;
}

inline tensorflow::thread::ThreadPool* Pool(tensorflow::OpKernelContext* context) {
  return context->device()->tensorflow_cpu_worker_threads()->workers;
}

// Calls `work(task, thread)` once for each task in [0, n_tasks), in that order of starting, on the
// calling thread and up to `n_threads` - 1 of the pool's. `thread` is below `n_threads`, and no two
// calls with the same one overlap. The caller works too and never waits for a thread that has not
// begun, so a busy pool can slow it but not block it.
inline void RunTasks(tensorflow::OpKernelContext* context, int64_t n_tasks, int64_t n_threads,
                     const std::function<void(int64_t, int64_t)>& work) {
  if (n_threads > n_tasks) n_threads = n_tasks;
  if (n_threads <= 1) {
    for (int64_t task = 0; task < n_tasks; ++task) work(task, 0);
    return;
  }
  auto* const pool = Pool(context);
  if (Team::Of(pool).Run(pool, n_tasks, n_threads, work)) return;

  // Beside another loop.
  struct Queue {
    std::atomic<int64_t> next{0}, finished{0}, threads{0};
    absl::Notification all_finished;
  };
  const auto queue = std::make_shared<Queue>();
  // Late threads find the queue empty and touch nothing of the caller's, which may have returned.
  const auto* const work_address = &work;
  const auto drain = [queue, n_tasks, work_address] {
    const int64_t thread = queue->threads++;
    for (int64_t task = queue->next++; task < n_tasks; task = queue->next++) {
      (*work_address)(task, thread);
      if (++queue->finished == n_tasks) queue->all_finished.Notify();
    }
  };
  for (int64_t i = 1; i < n_threads; ++i) pool->Schedule(drain);
  drain();
  queue->all_finished.WaitForNotification();
}

// Calls `work(begin, end)` on ranges that together are [0, n), on as many threads as are worth it.
// `cycles` is the cost of one of the n; ranges are several a thread, so that uneven ones level out.
//
// Not the pool's ParallelFor, which wakes as many threads as there are cores beside the caller's,
// and waits for each: on two cores it gained nothing on loops below a millisecond.
inline void ParallelFor(tensorflow::OpKernelContext* context, int64_t n, int64_t cycles,
                        const std::function<void(int64_t, int64_t)>& work) {
  // At least, some 20 us: to wake a thread takes longer than half of that, and one that has stayed
  // begins at once.
  const bool is_awake = Team::Of(Pool(context)).Stays();
  const double range_cycles = is_awake ? 25000 : 50000;
  constexpr int64_t kRangesPerThread = 8;
  if (n == 0) return;
  const int64_t most = std::min(n, kRangesPerThread * NumThreads(context));
  const double worth = static_cast<double>(n) * static_cast<double>(cycles) / range_cycles;
  const int64_t n_ranges = worth < static_cast<double>(most) ? static_cast<int64_t>(worth) : most;
  const int64_t n_threads = std::min(NumThreads(context), n_ranges / 2);
  if (n_threads <= 1) {
    work(0, n);
    return;
  }
  const int64_t size = n / n_ranges, rest = n % n_ranges;
  RunTasks(context, n_ranges, n_threads, [&](int64_t range, int64_t) {
    const int64_t begin = size * range + std::min(range, rest);
    work(begin, begin + size + (range < rest ? 1 : 0));
  });
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_PARALLEL_H_
