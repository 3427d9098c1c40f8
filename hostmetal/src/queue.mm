// MTLCommandQueue and its threads.
#include "hostmetal/src/queue.h"

#include "hostmetal/src/dispatch/thread_pool.h"
#include "hostmetal/src/residency_set.h"

namespace hostmetal {
void QueueState::AcquireSlot(CommandBufferState& b) {
  std::unique_lock<std::mutex> lock(slot_mutex);
  slot_free.wait(lock, [&] { return slots > 0; });
  --slots;
  if (spares.empty()) return;
  b.list = std::move(spares.back().list);
  b.resources = std::move(spares.back().resources);
  spares.pop_back();
}

void QueueState::ReleaseSlot(CommandBufferState& b) {
  b.list.Clear();
  std::lock_guard<std::mutex> lock(slot_mutex);
  ++slots;
  const bool small = b.list.commands.capacity() <= kMost && b.resources.capacity() <= kMost;
  if (small && spares.size() < kSpares) {
    spares.push_back({std::move(b.list), std::move(b.resources)});
  }
  slot_free.notify_one();
}

void QueueState::Append(HMCommandBuffer* buffer) {
  std::lock_guard<std::mutex> lock(mutex);
  order.push_back([buffer retain]);
  if (!started) {
    started = true;
    StartThread("metal-queue", Thread, new std::shared_ptr<QueueState>(shared_from_this()));
  }
}

void QueueState::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  changed.Increment();
  arrived.Increment();
}

dispatch_queue_t QueueState::Handlers() {
  std::lock_guard<std::mutex> lock(mutex);
  if (!handlers) handlers = dispatch_queue_create("metal.handlers", DISPATCH_QUEUE_SERIAL);
  return handlers;
}

void QueueState::Thread(void* context) {
  std::unique_ptr<std::shared_ptr<QueueState>> self(
      static_cast<std::shared_ptr<QueueState>*>(context));
  (*self)->Loop();
}

void QueueState::CompletionThread(void* context) {
  std::unique_ptr<std::shared_ptr<QueueState>> self(
      static_cast<std::shared_ptr<QueueState>*>(context));
  (*self)->CompletionLoop();
}

bool QueueState::IsFirstReady() const {
  return !order.empty() && order.front()->_state->committed.load(std::memory_order_acquire);
}

bool QueueState::RunNext(HMCommandBuffer* waiter) {
  if (!running.try_lock()) return false;
  HMCommandBuffer* next = nil;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (IsFirstReady()) {
      next = order.front();
      order.pop_front();
    }
  }
  if (!next) {
    running.unlock();
    return false;
  }
  PoolScope scope;
  Run(next, waiter);
  return true;
}

void QueueState::Loop() {
  for (;;) {
    uint32_t seen = changed.load();
    while (RunNext(nil)) {
    }
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (stopping && order.empty()) return;
    }
    changed.WaitWhile(seen, kSpinNs);
  }
}

void QueueState::WakeForRest() {
  bool ready, more;
  {
    std::lock_guard<std::mutex> lock(mutex);
    ready = IsFirstReady();
    more = !pending.empty();
  }
  if (ready) changed.Increment();
  if (more) arrived.Increment();
}

void QueueState::Help(HMCommandBuffer* buffer) {
  CommandBufferState& b = *buffer->_state;
  while (!b.run.load(std::memory_order_acquire) && RunNext(buffer)) {
  }
  WakeForRest();
  while (!b.done.load() && SettleNext(buffer)) {
  }
}

void QueueState::Later(Pending next) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    pending.push_back(std::move(next));
    if (!completion_started) {
      completion_started = true;
      StartThread("metal-done", CompletionThread,
                  new std::shared_ptr<QueueState>(shared_from_this()));
    }
  }
  arrived.Increment();
}

bool QueueState::SettleNext(HMCommandBuffer* waiter) {
  if (!completing.try_lock()) return false;
  std::optional<Pending> next;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!pending.empty()) {
      next = std::move(pending.front());
      pending.pop_front();
    }
  }
  if (!next) {
    completing.unlock();
    return false;
  }
  PoolScope scope;
  Settle(std::move(*next), waiter);
  return true;
}

void QueueState::CompletionLoop() {
  for (;;) {
    uint32_t seen = arrived.load();
    while (SettleNext(nil)) {
    }
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (stopping && order.empty() && pending.empty()) return;
    }
    arrived.WaitWhile(seen, kSpinAheadNs);
  }
}

// Holds `completing` and gives it back.
void QueueState::Settle(Pending p, HMCommandBuffer* waiter) {
  Failure failure = p.point->Wait();
  if (p.event) p.event->Keep(p.promise, p.value);
  if (p.buffer) {
    CommandBufferState& b = *p.buffer->_state;
    const uint64_t passed = p.point->EndNanoseconds(), busy = p.point->BusyNanoseconds();
    const uint64_t end = passed ? passed : Now();
    b.gpu_end.store(end, std::memory_order_relaxed);
    // The device's own clock leaves out the way there and back.
    if (busy) b.gpu_start.store(end - std::min(busy, end), std::memory_order_relaxed);
  }
  if (p.failure) failure = std::move(p.failure);
  if (p.buffer && p.buffer == waiter) {
    MarkCompleted(p.buffer, std::move(failure), p.encoder, &completing);
  } else {
    if (p.buffer) MarkCompleted(p.buffer, std::move(failure), p.encoder, nullptr);
    completing.unlock();
  }
  [p.buffer release];
  if (waiter) WakeForRest();
}

void QueueState::Run(HMCommandBuffer* buffer, HMCommandBuffer* waiter) {
  CommandBufferState& b = *buffer->_state;
  b.kernel_start.store(Now(), std::memory_order_relaxed);
  b.kernel_end.store(Now(), std::memory_order_relaxed);
  MarkScheduled(buffer);
  b.gpu_start.store(Now(), std::memory_order_relaxed);
  stream->UseLogs(&b.log);
  Outcome outcome = Execute(
      b.list, *stream,
      [this](std::shared_ptr<Point> point, EventState* event, uint64_t promise, uint64_t value) {
        Pending signal;
        signal.point = std::move(point);
        signal.event = event;
        signal.promise = promise;
        signal.value = value;
        Later(std::move(signal));
      });
  if (outcome.end) {
    runs_ahead = true;
    Pending completion;
    completion.point = std::move(outcome.end);
    completion.buffer = buffer;
    completion.failure = std::move(outcome.failure);
    completion.encoder = outcome.encoder;
    b.run.store(true, std::memory_order_release);
    Later(std::move(completion));
    running.unlock();
    return;
  }
  b.gpu_end.store(Now(), std::memory_order_relaxed);
  b.run.store(true, std::memory_order_release);
  if (buffer == waiter) {
    MarkCompleted(buffer, std::move(outcome.failure), outcome.encoder, &running);
  } else {
    MarkCompleted(buffer, std::move(outcome.failure), outcome.encoder, nullptr);
    running.unlock();
  }
  [buffer release];
}

}  // namespace hostmetal

@implementation HMCommandQueue

- (id)initWithDevice:(HMDevice*)device maxCommandBufferCount:(NSUInteger)count {
  self = [super init];
  if (self) {
    _device = device;
    _state = new std::shared_ptr<hostmetal::QueueState>(
        std::make_shared<hostmetal::QueueState>(*device->_driver, count));
  }
  return self;
}
- (void)dealloc {
  // Command buffers retain their queue, so nothing is left to run.
  (*_state)->Stop();
  delete _state;
  [_residencySets release];
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
- (void)insertDebugCaptureBoundary {
}
- (void)addResidencySet:(id<MTLResidencySet>)set {
  [self addResidencySets:&set count:1];
}
- (void)addResidencySets:(const id<MTLResidencySet>[])sets count:(NSUInteger)count {
  @synchronized(self) {
    if (!_residencySets) _residencySets = [[NSMutableSet alloc] init];
    for (NSUInteger i = 0; i < count; ++i) {
      if (hostmetal::ResidencySetOf(_device, sets[i])) {
        [_residencySets addObject:sets[i]];
      } else {
        fprintf(stderr,
                "[MTLCommandQueue addResidencySet:] the set is nil or not of this device\n");
      }
    }
  }
}
- (void)removeResidencySet:(id<MTLResidencySet>)set {
  [self removeResidencySets:&set count:1];
}
- (void)removeResidencySets:(const id<MTLResidencySet>[])sets count:(NSUInteger)count {
  @synchronized(self) {
    for (NSUInteger i = 0; i < count; ++i) {
      if (sets[i]) [_residencySets removeObject:sets[i]];
    }
  }
}
- (id<MTLCommandBuffer>)commandBuffer {
  return [[[HM_CLASS(HMCommandBuffer) alloc] initWithQueue:self
                                                   retains:YES
                                              errorOptions:MTLCommandBufferErrorOptionNone]
      autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor {
  HMCommandBuffer* buffer =
      [[[HM_CLASS(HMCommandBuffer) alloc] initWithQueue:self
                                                retains:[descriptor retainedReferences]
                                           errorOptions:[descriptor errorOptions]] autorelease];
  if (auto log =
          hostmetal::LogStateOf(_device, [descriptor logState], "MTLCommandBufferDescriptor")) {
    buffer->_state->log.Set(std::move(log), _device->_driver);
  }
  return buffer;
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [[[HM_CLASS(HMCommandBuffer) alloc] initWithQueue:self
                                                   retains:NO
                                              errorOptions:MTLCommandBufferErrorOptionNone]
      autorelease];
}

@end

@implementation MTLCommandQueueDescriptor
- (void)dealloc {
  [_logState release];
  [super dealloc];
}
- (id)init {
  self = [super init];
  if (self) _maxCommandBufferCount = 64;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCommandQueueDescriptor* copy = [[MTLCommandQueueDescriptor alloc] init];
  [copy setMaxCommandBufferCount:_maxCommandBufferCount];
  [copy setLogState:_logState];
  return copy;
}
@synthesize maxCommandBufferCount = _maxCommandBufferCount;
@synthesize logState = _logState;
@end
