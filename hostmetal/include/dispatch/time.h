// Points in time for timeouts and dispatch_after.
#ifndef HOSTMETAL_DISPATCH_TIME_H_
#define HOSTMETAL_DISPATCH_TIME_H_

#include <dispatch/base.h>
#include <time.h>

#ifndef NSEC_PER_SEC
#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull
#define USEC_PER_SEC 1000000ull
#define NSEC_PER_USEC 1000ull
#endif

typedef uint64_t dispatch_time_t;

#define DISPATCH_TIME_NOW (0ull)
#define DISPATCH_TIME_FOREVER (~0ull)

// `delta` nanoseconds after `when`, which is DISPATCH_TIME_NOW or another dispatch_time_t.
DISPATCH_EXPORT dispatch_time_t dispatch_time(dispatch_time_t when, int64_t delta);
// `delta` nanoseconds after `when` on the wall clock (NULL: now); it follows changes of the clock.
DISPATCH_EXPORT dispatch_time_t dispatch_walltime(const struct timespec* when, int64_t delta);

#endif  // HOSTMETAL_DISPATCH_TIME_H_
