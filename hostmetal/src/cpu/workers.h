// The threads on which all queues run the threadgroups of their kernels.
#ifndef HOSTMETAL_SRC_CPU_WORKERS_H_
#define HOSTMETAL_SRC_CPU_WORKERS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "hostmetal/src/sync.h"

namespace hostmetal {

class Workers {
 public:
  // Runs [first, first + count) of the items.
  using Body = void (*)(void* context, uint64_t first, uint64_t count);

  // One set of threads per process; never destroyed.
  static Workers& Get();

  // Processors in use: the calling thread and the workers.
  unsigned width() const { return width_; }

  // Runs items [0, total) on the calling thread and, when `expected_ns` or the clock says that it
  // pays, on the workers. Returns when all are done; the result is the processor time spent, in
  // nanoseconds.
  uint64_t Run(Body body, void* context, uint64_t total, uint64_t expected_ns);

 private:
  struct Job {
    Body body;
    void* context;
    uint64_t total;
    unsigned width;
    std::atomic<uint64_t> next;
    std::atomic<uint64_t> item_ns;  // the time of one item, as far as it is known
    std::atomic<uint32_t> users{0};
    std::atomic<uint64_t> busy_ns{0};

    bool Take(uint64_t* first, uint64_t* count);
    // Until nothing is left, or, of a worker, another job has fewer of them.
    void Work(const std::atomic<uint32_t>* jobs);
  };

  Workers();
  static void Thread(void* self);
  void Loop();
  void Share(Job* job);

  const unsigned width_;
  std::mutex mutex_;
  std::vector<Job*> jobs_;
  std::atomic<uint32_t> job_count_{0};
  WaitWord posted_;
  WaitWord finished_;
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_WORKERS_H_
