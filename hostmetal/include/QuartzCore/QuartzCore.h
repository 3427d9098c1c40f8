// QuartzCore's clock, with which programs measure; of layers there is nothing.
#ifndef HOSTMETAL_QUARTZCORE_QUARTZCORE_H_
#define HOSTMETAL_QUARTZCORE_QUARTZCORE_H_

#include <CoreFoundation/CoreFoundation.h>
#include <CoreGraphics/CGGeometry.h>
#include <time.h>

// Seconds since the machine started, without those that it slept.
static inline CFTimeInterval CACurrentMediaTime(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (CFTimeInterval)now.tv_sec + (CFTimeInterval)now.tv_nsec * 1e-9;
}

#endif  // HOSTMETAL_QUARTZCORE_QUARTZCORE_H_
