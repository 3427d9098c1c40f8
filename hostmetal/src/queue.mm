// MTLCommandQueue and its thread.
#include "hostmetal/src/queue.h"

#include "hostmetal/src/dispatch/thread_pool.h"

namespace hostmetal {
namespace {
// How long a queue's thread looks for the next command buffer before it sleeps.
constexpr uint64_t kSpinNs = 50000;
}  // namespace

void QueueState::AcquireSlot() {
  std::unique_lock<std::mutex> lock(slot_mutex);
  slot_free.wait(lock, [&] { return slots > 0; });
  --slots;
}

void QueueState::ReleaseSlot() {
  std::lock_guard<std::mutex> lock(slot_mutex);
  ++slots;
  slot_free.notify_one();
}

void QueueState::Append(HMCommandBuffer* buffer, const std::shared_ptr<QueueState>& self) {
  std::lock_guard<std::mutex> lock(mutex);
  order.push_back([buffer retain]);
  if (!started) {
    started = true;
    StartThread("metal-queue", Thread, new std::shared_ptr<QueueState>(self));
  }
}

void QueueState::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  changed.Increment();
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

bool QueueState::HasReady() {
  std::lock_guard<std::mutex> lock(mutex);
  return !order.empty() && order.front()->_state->committed.load(std::memory_order_acquire);
}

HMCommandBuffer* QueueState::TakeReady() {
  std::lock_guard<std::mutex> lock(mutex);
  if (order.empty() || !order.front()->_state->committed.load(std::memory_order_acquire)) {
    return nil;
  }
  HMCommandBuffer* first = order.front();
  order.pop_front();
  return first;
}

void QueueState::Loop() {
  for (;;) {
    uint32_t seen = changed.load();
    if (running.try_lock()) {
      while (HMCommandBuffer* next = TakeReady()) {
        PoolScope scope;
        Run(next);
      }
      running.unlock();
    }
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (stopping && order.empty()) return;
    }
    changed.WaitWhile(seen, kSpinNs);
  }
}

void QueueState::Help(HMCommandBuffer* buffer) {
  if (!running.try_lock()) return;
  while (buffer->_state->status.load(std::memory_order_acquire) < MTLCommandBufferStatusCompleted) {
    HMCommandBuffer* next = TakeReady();
    if (!next) break;
    PoolScope scope;
    Run(next);
  }
  running.unlock();
  // The queue's thread may have come, found it locked and gone to sleep.
  if (HasReady()) changed.Increment();
}

void QueueState::Run(HMCommandBuffer* buffer) {
  CommandBufferState& b = *buffer->_state;
  b.kernel_start.store(Now(), std::memory_order_relaxed);
  b.kernel_end.store(Now(), std::memory_order_relaxed);
  MarkScheduled(buffer);
  b.gpu_start.store(Now(), std::memory_order_relaxed);
  uint32_t encoder = 0;
  Failure failure = Execute(b.list, *stream, &encoder);
  uint64_t end = Now();
  b.gpu_end.store(end, std::memory_order_relaxed);
  // The device's own clock, where it has one, leaves out the way there and back.
  if (uint64_t busy = stream->BusyNanoseconds()) {
    b.gpu_start.store(end - std::min(busy, end), std::memory_order_relaxed);
  }
  MarkCompleted(buffer, std::move(failure), encoder);
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
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
- (id<MTLCommandBuffer>)commandBuffer {
  return [[[HMCommandBuffer alloc] initWithQueue:self
                                         retains:YES
                                    errorOptions:MTLCommandBufferErrorOptionNone] autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor {
  return [[[HMCommandBuffer alloc] initWithQueue:self
                                         retains:[descriptor retainedReferences]
                                    errorOptions:[descriptor errorOptions]] autorelease];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [[[HMCommandBuffer alloc] initWithQueue:self
                                         retains:NO
                                    errorOptions:MTLCommandBufferErrorOptionNone] autorelease];
}

@end

@implementation MTLCommandQueueDescriptor
- (id)init {
  self = [super init];
  if (self) _maxCommandBufferCount = 64;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCommandQueueDescriptor* copy = [[MTLCommandQueueDescriptor alloc] init];
  [copy setMaxCommandBufferCount:_maxCommandBufferCount];
  return copy;
}
@synthesize maxCommandBufferCount = _maxCommandBufferCount;
@end
