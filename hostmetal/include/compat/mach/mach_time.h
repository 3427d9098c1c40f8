// macOS's clock, which samples time themselves with: nanoseconds here.
#ifndef HOSTMETAL_MACH_TIME_H_
#define HOSTMETAL_MACH_TIME_H_

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

static inline uint64_t mach_absolute_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif  // HOSTMETAL_MACH_TIME_H_
