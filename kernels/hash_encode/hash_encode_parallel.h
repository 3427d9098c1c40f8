// A queue of tasks on TensorFlow's intra-op pool.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARALLEL_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/notification.h"

namespace metal_ops {

inline int64_t NumThreads(tensorflow::OpKernelContext* context) {
  return context->device()->tensorflow_cpu_worker_threads()->num_threads;
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

  struct Queue {
    std::atomic<int64_t> next{0}, finished{0}, threads{0};
    tensorflow::Notification all_finished;
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
  auto* const pool = context->device()->tensorflow_cpu_worker_threads()->workers;
  for (int64_t i = 1; i < n_threads; ++i) pool->Schedule(drain);
  drain();
  queue->all_finished.WaitForNotification();
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARALLEL_H_
