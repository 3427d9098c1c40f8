// Dispatch groups and semaphores.
#include <condition_variable>
#include <mutex>
#include <vector>

#include "hostmetal/src/dispatch/dispatch_object.h"
#include "hostmetal/src/dispatch/time.h"

namespace {

struct Notification {
  dispatch_queue_t queue;  // retained
  void* context;
  dispatch_function_t function;
};

struct GroupState {
  std::mutex mutex;
  std::condition_variable empty;
  uint64_t entered = 0;
  std::vector<Notification> notifications;
};

struct GroupItem {
  dispatch_group_t group;
  void* context;
  dispatch_function_t function;
};

void RunGroupItem(void* context) {
  auto* item = static_cast<GroupItem*>(context);
  item->function(item->context);
  dispatch_group_leave(item->group);
  delete item;
}

void CallAndReleaseBlock(void* context) {
  auto block = (dispatch_block_t)context;
  block();
  Block_release(block);
}

void Send(std::vector<Notification>& notifications) {
  for (const Notification& n : notifications) {
    dispatch_async_f(n.queue, n.context, n.function);
    [n.queue release];
  }
}

}  // namespace

@interface HMDispatchGroup : HMDispatchObject <OS_dispatch_group> {
 @public
  GroupState* _state;
}
@end

@implementation HMDispatchGroup
- (id)init {
  self = [super init];
  if (self) _state = new GroupState;
  return self;
}
- (void)dealloc {
  delete _state;
  [super dealloc];
}
@end

dispatch_group_t dispatch_group_create(void) { return [[HMDispatchGroup alloc] init]; }

void dispatch_group_enter(dispatch_group_t group) {
  GroupState& g = *static_cast<HMDispatchGroup*>(group)->_state;
  std::lock_guard<std::mutex> lock(g.mutex);
  // A group with something in it stays alive, whatever other references go.
  if (g.entered++ == 0) [group retain];
}

void dispatch_group_leave(dispatch_group_t group) {
  GroupState& g = *static_cast<HMDispatchGroup*>(group)->_state;
  std::vector<Notification> notifications;
  {
    std::lock_guard<std::mutex> lock(g.mutex);
    if (g.entered == 0) {
      [NSException raise:NSInternalInconsistencyException
                  format:@"[dispatch_group_leave] called more often than dispatch_group_enter"];
    }
    if (--g.entered != 0) return;
    notifications.swap(g.notifications);
    g.empty.notify_all();
  }
  Send(notifications);
  [group release];
}

intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t timeout) {
  GroupState& g = *static_cast<HMDispatchGroup*>(group)->_state;
  std::unique_lock<std::mutex> lock(g.mutex);
  return hostmetal::WaitUntil(g.empty, lock, timeout, [&] { return g.entered == 0; }) ? 0 : 1;
}

void dispatch_group_async_f(dispatch_group_t group, dispatch_queue_t queue, void* context,
                            dispatch_function_t work) {
  dispatch_group_enter(group);
  dispatch_async_f(queue, new GroupItem{group, context, work}, RunGroupItem);
}

void dispatch_group_async(dispatch_group_t group, dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_group_async_f(group, queue, Block_copy(block), CallAndReleaseBlock);
}

void dispatch_group_notify_f(dispatch_group_t group, dispatch_queue_t queue, void* context,
                             dispatch_function_t work) {
  GroupState& g = *static_cast<HMDispatchGroup*>(group)->_state;
  std::vector<Notification> now{{[queue retain], context, work}};
  {
    std::lock_guard<std::mutex> lock(g.mutex);
    if (g.entered != 0) {
      g.notifications.push_back(now[0]);
      return;
    }
  }
  Send(now);
}

void dispatch_group_notify(dispatch_group_t group, dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_group_notify_f(group, queue, Block_copy(block), CallAndReleaseBlock);
}

// ---- semaphores

namespace {
struct SemaphoreState {
  std::mutex mutex;
  std::condition_variable signalled;
  intptr_t value = 0;
  intptr_t waiting = 0;
};
}  // namespace

@interface HMDispatchSemaphore : HMDispatchObject <OS_dispatch_semaphore> {
 @public
  SemaphoreState* _state;
}
@end

@implementation HMDispatchSemaphore
- (id)init {
  self = [super init];
  if (self) _state = new SemaphoreState;
  return self;
}
- (void)dealloc {
  delete _state;
  [super dealloc];
}
@end

dispatch_semaphore_t dispatch_semaphore_create(intptr_t value) {
  if (value < 0) return nil;
  HMDispatchSemaphore* semaphore = [[HMDispatchSemaphore alloc] init];
  semaphore->_state->value = value;
  return semaphore;
}

intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore) {
  SemaphoreState& s = *static_cast<HMDispatchSemaphore*>(semaphore)->_state;
  // The waiter may drop the last reference as soon as it has the lock.
  [semaphore retain];
  intptr_t woken;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    ++s.value;
    woken = s.waiting > 0;
    if (woken) s.signalled.notify_one();
  }
  [semaphore release];
  return woken;
}

intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t timeout) {
  SemaphoreState& s = *static_cast<HMDispatchSemaphore*>(semaphore)->_state;
  std::unique_lock<std::mutex> lock(s.mutex);
  ++s.waiting;
  bool got = hostmetal::WaitUntil(s.signalled, lock, timeout, [&] { return s.value > 0; });
  --s.waiting;
  if (got) --s.value;
  return got ? 0 : 1;
}
