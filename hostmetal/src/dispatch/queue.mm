// Dispatch queues. A serial queue is a concurrent queue on which every item is a barrier.
#include <stdio.h>
#include <stdlib.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <queue>
#include <string>
#include <vector>

#include "hostmetal/src/dispatch/dispatch_object.h"
#include "hostmetal/src/dispatch/thread_pool.h"
#include "hostmetal/src/dispatch/time.h"

@class HMDispatchQueue;

namespace {

struct Work {
  Work* next = nullptr;
  dispatch_function_t function = nullptr;  // null: a thread waits in dispatch_sync
  void* context = nullptr;
  bool barrier = false;
  // For waiting threads; set with the queue's lock held, so that the waiter's frame outlives the
  // signal.
  std::atomic<bool> ready{false};
  std::condition_variable wake;
};

struct Specific {
  void* context;
  dispatch_function_t destructor;
};

struct QueueState {
  std::string label;
  bool serial = true;
  bool main = false;

  std::mutex mutex;
  Work* head = nullptr;
  Work* tail = nullptr;
  unsigned running = 0;
  bool exclusive = false;  // a barrier item runs
  pthread_t owner{};       // of the exclusive item, while it runs
  bool owned = false;
  std::map<const void*, Specific> specifics;
};

// The queue whose item the current thread runs; linked, as dispatch_sync nests.
struct Frame {
  HMDispatchQueue* queue;
  Frame* outer;
};
thread_local Frame* current_frame = nullptr;

void CallBlock(void* block) { ((dispatch_block_t)block)(); }

void CallAndReleaseBlock(void* context) {
  auto block = (dispatch_block_t)context;
  block();
  Block_release(block);
}

}  // namespace

@interface HMDispatchQueue : HMDispatchObject <OS_dispatch_queue> {
 @public
  QueueState* _state;
}
@end

@implementation HMDispatchQueue
- (id)init {
  self = [super init];
  if (self) _state = new QueueState;
  return self;
}
- (void)dealloc {
  for (auto& entry : _state->specifics) {
    if (entry.second.destructor) entry.second.destructor(entry.second.context);
  }
  delete _state;
  [super dealloc];
}
- (NSString*)description {
  return [NSString stringWithFormat:@"<dispatch_queue %p '%s'>", self, _state->label.c_str()];
}
@end

@interface HMDispatchQueueAttr : HMDispatchObject <OS_dispatch_queue_attr>
@end
@implementation HMDispatchQueueAttr
@end

namespace {

struct Job {
  HMDispatchQueue* queue;  // retained
  Work* work;
};

// Items of the main queue wait here for dispatch_main().
struct MainLoop {
  std::mutex mutex;
  std::condition_variable wake;
  std::queue<Job*> jobs;
};
MainLoop& TheMainLoop() {
  static MainLoop* loop = new MainLoop;
  return *loop;
}

void RunJob(void* context);

void Launch(HMDispatchQueue* queue, Work* work) {
  if (!work->function) {
    work->ready.store(true, std::memory_order_release);
    work->wake.notify_one();
    return;
  }
  auto* job = new Job{[queue retain], work};
  if (queue->_state->main) {
    MainLoop& loop = TheMainLoop();
    std::lock_guard<std::mutex> lock(loop.mutex);
    loop.jobs.push(job);
    loop.wake.notify_one();
  } else {
    hostmetal::SubmitToPool(RunJob, job);
  }
}

bool CanStart(const QueueState& q, bool barrier) { return barrier ? q.running == 0 : !q.exclusive; }

void Begin(QueueState& q, bool barrier) {
  ++q.running;
  q.exclusive = barrier;
}

// With the lock held, on the thread that runs an exclusive item.
void Own(QueueState& q) {
  q.owner = pthread_self();
  q.owned = true;
}

// Starts whatever may start now. Returns one asynchronous item for the calling thread to run, if it
// can run one.
Work* StartReady(HMDispatchQueue* queue, bool take) {
  QueueState& q = *queue->_state;
  Work* mine = nullptr;
  while (q.head && CanStart(q, q.head->barrier)) {
    Work* work = q.head;
    q.head = work->next;
    if (!q.head) q.tail = nullptr;
    Begin(q, work->barrier);
    if (take && !mine && work->function) {
      mine = work;
    } else {
      Launch(queue, work);
    }
  }
  return mine;
}

Work* Finish(HMDispatchQueue* queue, bool take) {
  QueueState& q = *queue->_state;
  std::lock_guard<std::mutex> lock(q.mutex);
  --q.running;
  q.exclusive = false;
  q.owned = false;
  return StartReady(queue, take);
}

void Enqueue(QueueState& q, Work* work) {
  if (q.tail) {
    q.tail->next = work;
  } else {
    q.head = work;
  }
  q.tail = work;
}

void Execute(HMDispatchQueue* queue, void* context, dispatch_function_t function) {
  Frame frame{queue, current_frame};
  current_frame = &frame;
  function(context);
  current_frame = frame.outer;
}

void RunJob(void* context) {
  auto* job = static_cast<Job*>(context);
  HMDispatchQueue* queue = job->queue;
  Work* work = job->work;
  delete job;
  while (work) {
    {
      hostmetal::PoolScope scope;
      if (work->barrier) {
        std::lock_guard<std::mutex> lock(queue->_state->mutex);
        Own(*queue->_state);
      }
      Execute(queue, work->context, work->function);
    }
    delete work;
    // The main queue's items run on the main thread only, one job each.
    work = Finish(queue, !queue->_state->main);
  }
  [queue release];
}

void Async(dispatch_queue_t object, void* context, dispatch_function_t function, bool barrier) {
  auto* queue = static_cast<HMDispatchQueue*>(object);
  QueueState& q = *queue->_state;
  auto* work = new Work;
  work->function = function;
  work->context = context;
  work->barrier = barrier || q.serial;
  std::lock_guard<std::mutex> lock(q.mutex);
  Enqueue(q, work);
  StartReady(queue, false);
}

void Sync(dispatch_queue_t object, void* context, dispatch_function_t function, bool barrier) {
  auto* queue = static_cast<HMDispatchQueue*>(object);
  QueueState& q = *queue->_state;
  barrier = barrier || q.serial;
  {
    std::unique_lock<std::mutex> lock(q.mutex);
    if (q.owned && pthread_equal(q.owner, pthread_self())) {
      // libdispatch traps here too: going on would wait for ever.
      fprintf(stderr,
              "[dispatch_sync] called on queue '%s', which the current thread already holds: this "
              "would deadlock\n",
              q.label.c_str());
      abort();
    }
    if (!q.head && CanStart(q, barrier)) {
      Begin(q, barrier);
    } else {
      Work work;
      work.barrier = barrier;
      Enqueue(q, &work);
      lock.unlock();
      for (int i = 0; i < 2000 && !work.ready.load(std::memory_order_acquire); ++i) {
        hostmetal::CpuRelax();
      }
      lock.lock();
      work.wake.wait(lock, [&] { return work.ready.load(std::memory_order_acquire); });
    }
    if (barrier) Own(q);
  }
  Execute(queue, context, function);
  Finish(queue, false);
}

HMDispatchQueue* MakeQueue(const char* label, bool serial) {
  HMDispatchQueue* queue = [[HMDispatchQueue alloc] init];
  queue->_state->label = label ? label : "";
  queue->_state->serial = serial;
  return queue;
}

}  // namespace

// ---- the C interface

bool hostmetal::IsSerial(dispatch_queue_t queue) {
  return static_cast<HMDispatchQueue*>(queue)->_state->serial;
}

bool hostmetal::TryRunOn(dispatch_queue_t object, void* context, dispatch_function_t function) {
  auto* queue = static_cast<HMDispatchQueue*>(object);
  QueueState& q = *queue->_state;
  const bool barrier = q.serial;
  {
    std::lock_guard<std::mutex> lock(q.mutex);
    if (q.head || !CanStart(q, barrier)) return false;
    Begin(q, barrier);
    if (barrier) Own(q);
  }
  Execute(queue, context, function);
  Finish(queue, false);
  return true;
}

dispatch_queue_attr_t _dispatch_queue_attr_concurrent(void) {
  static HMDispatchQueueAttr* attr = [[[HMDispatchQueueAttr alloc] init] hm_immortal];
  return attr;
}

dispatch_queue_attr_t dispatch_queue_attr_make_with_qos_class(dispatch_queue_attr_t attr,
                                                              dispatch_qos_class_t, int) {
  return attr;
}

dispatch_queue_attr_t dispatch_queue_attr_make_with_autorelease_frequency(
    dispatch_queue_attr_t attr, dispatch_autorelease_frequency_t) {
  return attr;
}

dispatch_queue_t dispatch_queue_create(const char* label, dispatch_queue_attr_t attr) {
  return MakeQueue(label, attr == nil);
}

dispatch_queue_t dispatch_get_global_queue(intptr_t identifier, uintptr_t flags) {
  static HMDispatchQueue* queue = [MakeQueue("com.apple.root.default-qos", false) hm_immortal];
  return queue;
}

dispatch_queue_t dispatch_get_main_queue(void) {
  static HMDispatchQueue* queue = [] {
    HMDispatchQueue* made = MakeQueue("com.apple.main-thread", true);
    made->_state->main = true;
    return [made hm_immortal];
  }();
  return queue;
}

void dispatch_main(void) {
  MainLoop& loop = TheMainLoop();
  for (;;) {
    std::unique_lock<std::mutex> lock(loop.mutex);
    loop.wake.wait(lock, [&] { return !loop.jobs.empty(); });
    Job* job = loop.jobs.front();
    loop.jobs.pop();
    lock.unlock();
    RunJob(job);
  }
}

const char* dispatch_queue_get_label(dispatch_queue_t queue) {
  if (!queue) queue = current_frame ? current_frame->queue : dispatch_get_main_queue();
  return static_cast<HMDispatchQueue*>(queue)->_state->label.c_str();
}

void dispatch_async_f(dispatch_queue_t queue, void* context, dispatch_function_t work) {
  Async(queue, context, work, false);
}

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block) {
  Async(queue, Block_copy(block), CallAndReleaseBlock, false);
}

void dispatch_barrier_async_f(dispatch_queue_t queue, void* context, dispatch_function_t work) {
  Async(queue, context, work, true);
}

void dispatch_barrier_async(dispatch_queue_t queue, dispatch_block_t block) {
  Async(queue, Block_copy(block), CallAndReleaseBlock, true);
}

void dispatch_sync_f(dispatch_queue_t queue, void* context, dispatch_function_t work) {
  Sync(queue, context, work, false);
}

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  Sync(queue, block, CallBlock, false);
}

void dispatch_async_and_wait_f(dispatch_queue_t queue, void* context, dispatch_function_t work) {
  Sync(queue, context, work, false);
}

void dispatch_async_and_wait(dispatch_queue_t queue, dispatch_block_t block) {
  Sync(queue, block, CallBlock, false);
}

void dispatch_barrier_sync_f(dispatch_queue_t queue, void* context, dispatch_function_t work) {
  Sync(queue, context, work, true);
}

void dispatch_barrier_sync(dispatch_queue_t queue, dispatch_block_t block) {
  Sync(queue, block, CallBlock, true);
}

void dispatch_queue_set_specific(dispatch_queue_t queue, const void* key, void* context,
                                 dispatch_function_t destructor) {
  QueueState& q = *static_cast<HMDispatchQueue*>(queue)->_state;
  Specific old{nullptr, nullptr};
  {
    std::lock_guard<std::mutex> lock(q.mutex);
    auto found = q.specifics.find(key);
    if (found != q.specifics.end()) {
      old = found->second;
      q.specifics.erase(found);
    }
    if (context) q.specifics[key] = {context, destructor};
  }
  if (old.destructor) old.destructor(old.context);
}

void* dispatch_queue_get_specific(dispatch_queue_t queue, const void* key) {
  QueueState& q = *static_cast<HMDispatchQueue*>(queue)->_state;
  std::lock_guard<std::mutex> lock(q.mutex);
  auto found = q.specifics.find(key);
  return found == q.specifics.end() ? nullptr : found->second.context;
}

void* dispatch_get_specific(const void* key) {
  return current_frame ? dispatch_queue_get_specific(current_frame->queue, key) : nullptr;
}
