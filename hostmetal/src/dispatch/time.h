// Conversion of dispatch_time_t to the monotonic clock.
#ifndef HOSTMETAL_SRC_DISPATCH_TIME_H_
#define HOSTMETAL_SRC_DISPATCH_TIME_H_

#include <dispatch/time.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "hostmetal/src/sync.h"

namespace hostmetal {

// Nanoseconds on Now()'s clock; kForever stays kForever. Wall-clock times are stored negated.
inline uint64_t Deadline(dispatch_time_t when) {
  if (when == DISPATCH_TIME_FOREVER) return kForever;
  if (when == DISPATCH_TIME_NOW) return Now();
  if (int64_t(when) >= 0) return when;
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  int64_t ahead = -int64_t(when) - (int64_t(wall.tv_sec) * 1000000000 + wall.tv_nsec);
  return ahead > 0 ? Now() + uint64_t(ahead) : Now();
}

// False if `ready` did not become true in time.
template <typename Ready>
bool WaitUntil(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
               dispatch_time_t timeout, Ready ready) {
  if (ready()) return true;
  if (timeout == DISPATCH_TIME_FOREVER) {
    condition.wait(lock, ready);
    return true;
  }
  std::chrono::steady_clock::time_point end{
      std::chrono::nanoseconds(static_cast<int64_t>(Deadline(timeout)))};
  return condition.wait_until(lock, end, ready);
}

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_DISPATCH_TIME_H_
