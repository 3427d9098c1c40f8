// macOS's clocks, which samples time themselves with: nanoseconds here.
#ifndef HOSTMETAL_MACH_TIME_H_
#define HOSTMETAL_MACH_TIME_H_

#include <errno.h>
#include <stdint.h>
#include <time.h>

struct mach_timebase_info {
  uint32_t numer;
  uint32_t denom;
};
typedef struct mach_timebase_info mach_timebase_info_data_t;
typedef struct mach_timebase_info* mach_timebase_info_t;

static inline int mach_timebase_info(mach_timebase_info_t info) {
  info->numer = info->denom = 1;
  return 0;
}

static inline uint64_t hostmetal_time_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
// It stands still while the machine sleeps; the continuous one goes on.
static inline uint64_t mach_absolute_time(void) { return hostmetal_time_of(CLOCK_MONOTONIC); }
static inline uint64_t mach_approximate_time(void) {
  return hostmetal_time_of(CLOCK_MONOTONIC_COARSE);
}
static inline uint64_t mach_continuous_time(void) { return hostmetal_time_of(CLOCK_BOOTTIME); }

static inline int mach_wait_until(uint64_t deadline) {
  struct timespec at = {(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0) == EINTR) {
  }
  return 0;
}

#endif  // HOSTMETAL_MACH_TIME_H_
