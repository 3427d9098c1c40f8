// C's <time.h>, and the clocks of a Mac's that programs time themselves with.
#include_next <time.h>

#if !defined(HOSTMETAL_TIME_H_) && defined(CLOCK_BOOTTIME)
#define HOSTMETAL_TIME_H_

#include <stdint.h>

#define CLOCK_UPTIME_RAW CLOCK_MONOTONIC
#define CLOCK_UPTIME_RAW_APPROX CLOCK_MONOTONIC_COARSE

// 0 where there is no such clock.
static inline uint64_t clock_gettime_nsec_np(clockid_t clock) {
  struct timespec now;
  if (clock_gettime(clock, &now)) return 0;
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#endif
