// Counting semaphores.
#ifndef HOSTMETAL_DISPATCH_SEMAPHORE_H_
#define HOSTMETAL_DISPATCH_SEMAPHORE_H_

#include <dispatch/object.h>
#include <dispatch/time.h>

DISPATCH_DECL(dispatch_semaphore);

// NULL when `value` is negative.
DISPATCH_EXPORT dispatch_semaphore_t dispatch_semaphore_create(intptr_t value)
    DISPATCH_RETURNS_RETAINED;
// Non-zero when a waiting thread was woken.
DISPATCH_EXPORT intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore);
// 0 on success, non-zero on timeout.
DISPATCH_EXPORT intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore,
                                                 dispatch_time_t timeout);

#endif  // HOSTMETAL_DISPATCH_SEMAPHORE_H_
