// Threads for dispatch queues: made on demand, as work items may block, and gone when idle for some
// seconds.
#ifndef HOSTMETAL_SRC_DISPATCH_THREAD_POOL_H_
#define HOSTMETAL_SRC_DISPATCH_THREAD_POOL_H_

namespace hostmetal {

// Runs function(context) on some thread inside an autorelease pool.
void SubmitToPool(void (*function)(void* context), void* context);

// Starts a detached thread that is known to Foundation and runs function(context).
void StartThread(const char* name, void (*function)(void* context), void* context);

// Processors that this process may use, or HOSTMETAL_NUM_THREADS.
unsigned ProcessorCount();

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_DISPATCH_THREAD_POOL_H_
