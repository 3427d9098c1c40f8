// Dispatches that run for longer than HOSTMETAL_TIMEOUT end.
#ifndef HOSTMETAL_SRC_CPU_DEADLINE_H_
#define HOSTMETAL_SRC_CPU_DEADLINE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "hostmetal/src/cpu/page_fault.h"

namespace hostmetal {

// Nanoseconds; 0 without HOSTMETAL_TIMEOUT, or before ReadTimeout().
uint64_t Timeout();

// The time of one dispatch. From its end on every thread in it is interrupted, until it has left.
class Deadline {
 public:
  explicit Deadline(uint64_t nanoseconds);
  ~Deadline();
  const std::atomic<bool>& expired() const { return expired_; }

  // While it lives, this thread is in the dispatch.
  class Thread {
   public:
    explicit Thread(Deadline* deadline);
    ~Thread();

   private:
    Deadline* const deadline_;
    const Interruptible interruptible_;
  };

 private:
  friend class Watch;
  const uint64_t end_;
  std::atomic<bool> expired_{false};
  std::vector<int> threads_;  // guarded by the watch's mutex
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_DEADLINE_H_
