// dispatch_after and dispatch_apply.
#include <Block.h>

#include <condition_variable>
#include <mutex>
#include <queue>

#include "hostmetal/src/dispatch/dispatch_object.h"
#include "hostmetal/src/dispatch/thread_pool.h"
#include "hostmetal/src/dispatch/time.h"

namespace {

void CallAndReleaseBlock(void* context) {
  auto block = (dispatch_block_t)context;
  block();
  Block_release(block);
}

// ---- dispatch_after

struct Timer {
  uint64_t deadline;
  uint64_t sequence;       // equal deadlines fire in the order of the calls
  dispatch_queue_t queue;  // retained
  void* context;
  dispatch_function_t function;
  bool operator<(const Timer& other) const {
    return deadline != other.deadline ? deadline > other.deadline : sequence > other.sequence;
  }
};

struct Timers {
  std::mutex mutex;
  std::condition_variable wake;
  std::priority_queue<Timer> heap;
  uint64_t sequence = 0;
  bool running = false;
};
Timers& TheTimers() {
  static Timers* timers = new Timers;
  return *timers;
}

void TimerThread(void*) {
  Timers& timers = TheTimers();
  std::unique_lock<std::mutex> lock(timers.mutex);
  for (;;) {
    if (timers.heap.empty()) {
      timers.wake.wait(lock);
      continue;
    }
    uint64_t deadline = timers.heap.top().deadline;
    if (hostmetal::Now() < deadline) {
      timers.wake.wait_until(
          lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(int64_t(deadline))));
      continue;
    }
    Timer timer = timers.heap.top();
    timers.heap.pop();
    lock.unlock();
    dispatch_async_f(timer.queue, timer.context, timer.function);
    [timer.queue release];
    lock.lock();
  }
}

// ---- dispatch_apply

struct Apply {
  size_t iterations;
  void* context;
  void (*work)(void*, size_t);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::condition_variable done;
  size_t finished = 0;
  std::atomic<int> references{1};

  void Unref() {
    if (references.fetch_sub(1) == 1) delete this;
  }
  void Run() {
    size_t count = 0;
    for (;;) {
      size_t i = next.fetch_add(1);
      if (i >= iterations) break;
      work(context, i);
      ++count;
    }
    if (!count) return;
    std::lock_guard<std::mutex> lock(mutex);
    finished += count;
    if (finished == iterations) done.notify_all();
  }
};

void ApplyHelper(void* context) {
  auto* apply = static_cast<Apply*>(context);
  apply->Run();
  apply->Unref();
}

void ApplyParallel(void* context) {
  auto* apply = static_cast<Apply*>(context);
  size_t helpers = hostmetal::ProcessorCount() - 1;
  if (helpers > apply->iterations - 1) helpers = apply->iterations - 1;
  apply->references.fetch_add(int(helpers));
  for (size_t i = 0; i < helpers; ++i) hostmetal::SubmitToPool(ApplyHelper, apply);
  apply->Run();
  std::unique_lock<std::mutex> lock(apply->mutex);
  apply->done.wait(lock, [&] { return apply->finished == apply->iterations; });
}

void ApplySerial(void* context) { static_cast<Apply*>(context)->Run(); }

void CallApplyBlock(void* context, size_t i) { ((void (^)(size_t))context)(i); }

}  // namespace

void dispatch_after_f(dispatch_time_t when, dispatch_queue_t queue, void* context,
                      dispatch_function_t work) {
  if (when == DISPATCH_TIME_NOW) return dispatch_async_f(queue, context, work);
  Timers& timers = TheTimers();
  std::lock_guard<std::mutex> lock(timers.mutex);
  if (!timers.running) {
    hostmetal::StartThread("dispatch-timer", TimerThread, nullptr);
    timers.running = true;
  }
  timers.heap.push({hostmetal::Deadline(when), timers.sequence++, [queue retain], context, work});
  timers.wake.notify_one();
}

void dispatch_after(dispatch_time_t when, dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_after_f(when, queue, Block_copy(block), CallAndReleaseBlock);
}

void dispatch_apply_f(size_t iterations, dispatch_queue_t queue, void* context,
                      void (*work)(void*, size_t)) {
  if (!iterations) return;
  auto* apply = new Apply;
  apply->iterations = iterations;
  apply->context = context;
  apply->work = work;
  if (!queue) queue = dispatch_get_global_queue(0, 0);
  bool serial = hostmetal::IsSerial(queue);
  dispatch_sync_f(queue, apply, serial ? ApplySerial : ApplyParallel);
  apply->Unref();
}

void dispatch_apply(size_t iterations, dispatch_queue_t queue, void (^block)(size_t)) {
  dispatch_apply_f(iterations, queue, block, CallApplyBlock);
}
