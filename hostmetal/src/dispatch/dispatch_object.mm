// dispatch_retain, dispatch_release, contexts, time and dispatch_once.
#include "hostmetal/src/dispatch/dispatch_object.h"

#include <condition_variable>
#include <mutex>

#include "hostmetal/src/dispatch/time.h"

@implementation HMDispatchObject
- (void)dealloc {
  void* context = _context.load();
  dispatch_function_t finalizer = _finalizer.load();
  if (context && finalizer) finalizer(context);
  [super dealloc];
}
@end

namespace {

// One lock for all predicates: only threads that lose the race for the first call come here.
struct OnceGate {
  std::mutex mutex;
  std::condition_variable done;
};
OnceGate& TheOnceGate() {
  static OnceGate* gate = new OnceGate;
  return *gate;
}

constexpr dispatch_once_t kOnceRunning = 1;
constexpr dispatch_once_t kOnceDone = ~dispatch_once_t{0};

void CallBlock(void* block) { ((dispatch_block_t)block)(); }

}  // namespace

void dispatch_retain(dispatch_object_t object) { [object retain]; }

void dispatch_release(dispatch_object_t object) { [object release]; }

void* dispatch_get_context(dispatch_object_t object) {
  return static_cast<HMDispatchObject*>(object)->_context.load();
}

void dispatch_set_context(dispatch_object_t object, void* context) {
  static_cast<HMDispatchObject*>(object)->_context.store(context);
}

void dispatch_set_finalizer_f(dispatch_object_t object, dispatch_function_t finalizer) {
  static_cast<HMDispatchObject*>(object)->_finalizer.store(finalizer);
}

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t delta) {
  if (when == DISPATCH_TIME_FOREVER) return when;
  if (int64_t(when) < 0) {
    int64_t wall;
    if (__builtin_add_overflow(-int64_t(when), delta, &wall)) return DISPATCH_TIME_FOREVER;
    return dispatch_time_t(-(wall > 2 ? wall : 2));  // -1 would read as FOREVER
  }
  int64_t base = int64_t(when == DISPATCH_TIME_NOW ? hostmetal::Now() : when);
  int64_t time;
  if (__builtin_add_overflow(base, delta, &time)) return DISPATCH_TIME_FOREVER;
  return dispatch_time_t(time > 1 ? time : 1);  // 0 would read as NOW
}

dispatch_time_t dispatch_walltime(const struct timespec* when, int64_t delta) {
  timespec wall;
  if (when) {
    wall = *when;
  } else {
    clock_gettime(CLOCK_REALTIME, &wall);
  }
  int64_t base = int64_t(wall.tv_sec) * 1000000000 + wall.tv_nsec;
  return dispatch_time(dispatch_time_t(-(base > 2 ? base : 2)), delta);
}

void dispatch_once_f(dispatch_once_t* predicate, void* context, dispatch_function_t work) {
  if (__atomic_load_n(predicate, __ATOMIC_ACQUIRE) == kOnceDone) return;
  OnceGate& gate = TheOnceGate();
  dispatch_once_t expected = 0;
  if (__atomic_compare_exchange_n(predicate, &expected, kOnceRunning, false, __ATOMIC_ACQUIRE,
                                  __ATOMIC_ACQUIRE)) {
    work(context);
    {
      std::lock_guard<std::mutex> lock(gate.mutex);
      __atomic_store_n(predicate, kOnceDone, __ATOMIC_RELEASE);
    }
    gate.done.notify_all();
    return;
  }
  std::unique_lock<std::mutex> lock(gate.mutex);
  gate.done.wait(lock, [&] { return __atomic_load_n(predicate, __ATOMIC_ACQUIRE) == kOnceDone; });
}

void dispatch_once(dispatch_once_t* predicate, dispatch_block_t block) {
  dispatch_once_f(predicate, block, CallBlock);
}
