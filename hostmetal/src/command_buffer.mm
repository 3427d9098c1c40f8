// MTLCommandBuffer.
#include "hostmetal/src/blit_encoder.h"
#include "hostmetal/src/compute_encoder.h"
#include "hostmetal/src/counters.h"
#include "hostmetal/src/dispatch/dispatch_object.h"
#include "hostmetal/src/errors.h"
#include "hostmetal/src/event.h"
#include "hostmetal/src/queue.h"
#include "hostmetal/src/residency_set.h"

using hostmetal::CommandBufferState;
using hostmetal::CommandType;
using hostmetal::Failure;

namespace {

double Seconds(const std::atomic<uint64_t>& ns) {
  return double(ns.load(std::memory_order_relaxed)) * 1e-9;
}

// Misuse after commit cannot become the command buffer's error any more.
void Complain(const char* method, const char* what) {
  fprintf(stderr, "[MTLCommandBuffer %s] %s\n", method, what);
}

void Call(std::vector<MTLCommandBufferHandler>& handlers, HMCommandBuffer* buffer) {
  for (MTLCommandBufferHandler handler : handlers) {
    handler(buffer);
    Block_release(handler);
  }
  handlers.clear();
}

std::vector<MTLCommandBufferHandler> Take(CommandBufferState& b,
                                          std::vector<MTLCommandBufferHandler>& handlers) {
  std::vector<MTLCommandBufferHandler> taken;
  std::lock_guard<std::mutex> lock(b.mutex);
  taken.swap(handlers);
  return taken;
}

void RunScheduledHandlers(void* context) {
  auto* buffer = static_cast<HMCommandBuffer*>(context);
  CommandBufferState& b = *buffer->_state;
  auto handlers = Take(b, b.scheduled_handlers);
  Call(handlers, buffer);
  b.scheduled.Set(1);
  [buffer release];
}

void RunCompletedHandlers(void* context) {
  auto* buffer = static_cast<HMCommandBuffer*>(context);
  CommandBufferState& b = *buffer->_state;
  auto handlers = Take(b, b.completed_handlers);
  Call(handlers, buffer);
  b.done.Set(1);
  [buffer release];
}

struct Held {
  HMCommandBuffer* buffer;
  std::mutex* mutex;
};

void RunCompletedHandlersHere(void* context) {
  auto* held = static_cast<Held*>(context);
  held->mutex->unlock();
  // Later work does not wait for handlers.
  (*held->buffer->_queue->_state)->WakeForRest();
  RunCompletedHandlers(held->buffer);
}

}  // namespace

@interface HMEncoderInfo : HMObject <MTLCommandBufferEncoderInfo> {
 @public
  NSString* _label;
  NSArray* _signposts;
  MTLCommandEncoderErrorState _errorState;
}
@end
@implementation HMEncoderInfo
- (void)dealloc {
  [_label release];
  [_signposts release];
  [super dealloc];
}
- (NSString*)label {
  return _label;
}
- (NSArray*)debugSignposts {
  return _signposts;
}
- (MTLCommandEncoderErrorState)errorState {
  return _errorState;
}
@end

namespace hostmetal {

void MarkScheduled(HMCommandBuffer* buffer) {
  CommandBufferState& b = *buffer->_state;
  b.status.store(MTLCommandBufferStatusScheduled, std::memory_order_release);
  bool handlers;
  {
    std::lock_guard<std::mutex> lock(b.mutex);
    b.scheduled_sent = true;
    handlers = !b.scheduled_handlers.empty();
  }
  if (handlers) {
    dispatch_async_f((*buffer->_queue->_state)->Handlers(), [buffer retain], RunScheduledHandlers);
  } else {
    b.scheduled.Set(1);
  }
}

void MarkCompleted(HMCommandBuffer* buffer, Failure failure, uint32_t encoder, std::mutex* held) {
  CommandBufferState& b = *buffer->_state;
  bool failed = bool(failure);
  // The kernels' texts are their libraries': before these may go.
  MTLCommandBufferHandler logs = b.log.End();
  for (id resource : b.resources) [resource release];
  b.resources.clear();
  bool handlers;
  {
    std::lock_guard<std::mutex> lock(b.mutex);
    b.failure = std::move(failure);
    b.failed_encoder = encoder;
    b.completed_sent = true;
    if (logs) b.completed_handlers.insert(b.completed_handlers.begin(), logs);
    handlers = !b.completed_handlers.empty();
    b.status.store(failed ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted,
                   std::memory_order_release);
  }
  b.holds_slot = false;
  (*buffer->_queue->_state)->ReleaseSlot(b);
  if (handlers) {
    dispatch_queue_t queue = (*buffer->_queue->_state)->Handlers();
    [buffer retain];
    Held here{buffer, held};
    if (held && TryRunOn(queue, &here, RunCompletedHandlersHere)) return;
    dispatch_async_f(queue, buffer, RunCompletedHandlers);
  } else {
    b.done.Set(1);
  }
  if (held) held->unlock();
}

}  // namespace hostmetal

@implementation MTLCommandBufferDescriptor
- (void)dealloc {
  [_logState release];
  [super dealloc];
}
@synthesize logState = _logState;
@synthesize retainedReferences = _retainedReferences;
@synthesize errorOptions = _errorOptions;
- (id)init {
  self = [super init];
  if (self) _retainedReferences = YES;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCommandBufferDescriptor* copy = [[MTLCommandBufferDescriptor alloc] init];
  [copy setRetainedReferences:_retainedReferences];
  [copy setErrorOptions:_errorOptions];
  [copy setLogState:_logState];
  return copy;
}
@end

@implementation MTLComputePassDescriptor
@synthesize dispatchType = _dispatchType;
- (id)init {
  self = [super init];
  if (self) {
    _sampleBufferAttachments = [[MTLComputePassSampleBufferAttachmentDescriptorArray alloc] init];
  }
  return self;
}
- (void)dealloc {
  [_sampleBufferAttachments release];
  [super dealloc];
}
- (MTLComputePassSampleBufferAttachmentDescriptorArray*)sampleBufferAttachments {
  return _sampleBufferAttachments;
}
+ (MTLComputePassDescriptor*)computePassDescriptor {
  return [[[MTLComputePassDescriptor alloc] init] autorelease];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLComputePassDescriptor* copy = [[MTLComputePassDescriptor alloc] init];
  [copy setDispatchType:_dispatchType];
  for (NSUInteger i = 0; i < 4; ++i) {
    [copy->_sampleBufferAttachments setObject:[_sampleBufferAttachments objectAtIndexedSubscript:i]
                           atIndexedSubscript:i];
  }
  return copy;
}
@end

@implementation MTLBlitPassDescriptor
- (id)init {
  self = [super init];
  if (self) {
    _sampleBufferAttachments = [[MTLBlitPassSampleBufferAttachmentDescriptorArray alloc] init];
  }
  return self;
}
- (void)dealloc {
  [_sampleBufferAttachments release];
  [super dealloc];
}
- (MTLBlitPassSampleBufferAttachmentDescriptorArray*)sampleBufferAttachments {
  return _sampleBufferAttachments;
}
+ (MTLBlitPassDescriptor*)blitPassDescriptor {
  return [[[MTLBlitPassDescriptor alloc] init] autorelease];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLBlitPassDescriptor* copy = [[MTLBlitPassDescriptor alloc] init];
  for (NSUInteger i = 0; i < 4; ++i) {
    [copy->_sampleBufferAttachments setObject:[_sampleBufferAttachments objectAtIndexedSubscript:i]
                           atIndexedSubscript:i];
  }
  return copy;
}
@end

@implementation HMCommandBuffer

- (id)initWithQueue:(HMCommandQueue*)queue
            retains:(BOOL)retains
       errorOptions:(MTLCommandBufferErrorOption)options {
  self = [super init];
  if (self) {
    _state = new CommandBufferState;
    (*queue->_state)->AcquireSlot(*_state);
    _queue = [queue retain];
    _state->retains = retains;
    _state->error_options = options;
    _state->log.Set((*queue->_state)->log, queue->_device->_driver);
    // Room for a launch or two: lists that grow from nothing allocate at each power of two.
    _state->resources.reserve(16);
    _state->encoders.reserve(2);
    _state->list.commands.reserve(4);
  }
  return self;
}

- (void)dealloc {
  for (id resource : _state->resources) [resource release];
  _state->resources.clear();
  if (_state->holds_slot) (*_queue->_state)->ReleaseSlot(*_state);
  for (MTLCommandBufferHandler handler : _state->scheduled_handlers) Block_release(handler);
  for (MTLCommandBufferHandler handler : _state->completed_handlers) Block_release(handler);
  [_state->error release];
  delete _state;
  [_queue release];
  [super dealloc];
}

- (NSString*)description {
  return [NSString stringWithFormat:@"<MTLCommandBuffer %p '%@' status %u>", self,
                                    [self label] ? [self label] : @"", unsigned([self status])];
}

- (id<MTLDevice>)device {
  return _queue->_device;
}
- (id<MTLCommandQueue>)commandQueue {
  return _queue;
}
- (BOOL)retainedReferences {
  return _state->retains;
}
- (MTLCommandBufferErrorOption)errorOptions {
  return _state->error_options;
}
- (MTLCommandBufferStatus)status {
  return MTLCommandBufferStatus(_state->status.load(std::memory_order_acquire));
}
- (CFTimeInterval)kernelStartTime {
  return Seconds(_state->kernel_start);
}
- (CFTimeInterval)kernelEndTime {
  return Seconds(_state->kernel_end);
}
- (CFTimeInterval)GPUStartTime {
  return Seconds(_state->gpu_start);
}
- (CFTimeInterval)GPUEndTime {
  return Seconds(_state->gpu_end);
}

- (NSError*)error {
  CommandBufferState& b = *_state;
  std::lock_guard<std::mutex> lock(b.mutex);
  if (!b.failure) return nil;
  if (!b.error) {
    NSMutableDictionary* info = [NSMutableDictionary dictionary];
    [info setObject:hostmetal::ToNSString(b.failure.message) forKey:NSLocalizedDescriptionKey];
    if (b.error_options & MTLCommandBufferErrorOptionEncoderExecutionStatus) {
      NSMutableArray* infos = [NSMutableArray array];
      for (uint32_t i = 0; i < b.encoders.size(); ++i) {
        HMEncoderInfo* one = [[[HMEncoderInfo alloc] init] autorelease];
        one->_label = [hostmetal::ToNSString(b.encoders[i].label) retain];
        NSMutableArray* signposts = [[NSMutableArray alloc] init];
        for (const std::string& text : b.encoders[i].signposts) {
          [signposts addObject:hostmetal::ToNSString(text)];
        }
        one->_signposts = signposts;
        one->_errorState = i < b.failed_encoder    ? MTLCommandEncoderErrorStateCompleted
                           : i == b.failed_encoder ? MTLCommandEncoderErrorStateFaulted
                                                   : MTLCommandEncoderErrorStatePending;
        [infos addObject:one];
      }
      [info setObject:infos forKey:MTLCommandBufferEncoderInfoErrorKey];
    }
    b.error = [[NSError alloc] initWithDomain:MTLCommandBufferErrorDomain
                                         code:b.failure.code
                                     userInfo:info];
  }
  return [[b.error retain] autorelease];
}

- (void)enqueue {
  uint32_t expected = MTLCommandBufferStatusNotEnqueued;
  if (_state->status.compare_exchange_strong(expected, MTLCommandBufferStatusEnqueued)) {
    (*_queue->_state)->Append(self);
  }
}

- (void)commit {
  CommandBufferState& b = *_state;
  if (b.committed.load(std::memory_order_relaxed)) return Complain("commit", "called twice");
  if (b.open_encoder) {
    b.list.Fail(hostmetal::kInternal, "[commit] called before endEncoding of the last encoder");
  }
  [self enqueue];
  std::shared_ptr<hostmetal::QueueState> queue = *_queue->_state;
  b.status.store(MTLCommandBufferStatusCommitted, std::memory_order_release);
  b.committed.store(true, std::memory_order_release);
  queue->Committed();
}

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  CommandBufferState& b = *_state;
  {
    std::lock_guard<std::mutex> lock(b.mutex);
    b.scheduled_handlers.push_back(Block_copy(block));
    if (!b.scheduled_sent) return;
  }
  dispatch_async_f((*_queue->_state)->Handlers(), [self retain], RunScheduledHandlers);
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  CommandBufferState& b = *_state;
  {
    std::lock_guard<std::mutex> lock(b.mutex);
    b.completed_handlers.push_back(Block_copy(block));
    if (!b.completed_sent) return;
  }
  dispatch_async_f((*_queue->_state)->Handlers(), [self retain], RunCompletedHandlers);
}

- (void)waitUntilScheduled {
  _state->scheduled.WaitWhile(0, (*_queue->_state)->SpinNs());
}
- (void)waitUntilCompleted {
  if (_state->done.load()) return;
  (*_queue->_state)->Help(self);
  _state->done.WaitWhile(0, (*_queue->_state)->SpinNs());
}

// Whether something may be encoded now, outside or at the start of an encoder.
- (BOOL)canEncode:(const char*)method {
  CommandBufferState& b = *_state;
  if (b.committed.load(std::memory_order_relaxed)) {
    Complain(method, "the command buffer is committed");
    return NO;
  }
  if (b.open_encoder) {
    b.list.Fail(hostmetal::kInternal, std::string("[") + method +
                                          "] another encoder is open; call its endEncoding first");
    return NO;
  }
  return YES;
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  if (![self canEncode:"computeCommandEncoder"]) return nil;
  return [[[HM_CLASS(HMComputeCommandEncoder) alloc] initWithCommandBuffer:self
                                                              dispatchType:type] autorelease];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:
    (MTLComputePassDescriptor*)descriptor {
  id<MTLComputeCommandEncoder> encoder =
      [self computeCommandEncoderWithDispatchType:[descriptor dispatchType]];
  if (encoder) hostmetal::EncodeSamples((HMEncoder*)encoder, descriptor);
  return encoder;
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  if (![self canEncode:"blitCommandEncoder"]) return nil;
  return [[[HM_CLASS(HMBlitCommandEncoder) alloc] initWithCommandBuffer:self] autorelease];
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoderWithDescriptor:(MTLBlitPassDescriptor*)descriptor {
  id<MTLBlitCommandEncoder> encoder = [self blitCommandEncoder];
  if (encoder) hostmetal::EncodeSamples((HMEncoder*)encoder, descriptor);
  return encoder;
}

- (void)encode:(CommandType)type event:(id<MTLEvent>)event value:(uint64_t)value {
  const char* method = type == CommandType::kWait ? "encodeWaitForEvent" : "encodeSignalEvent";
  if (![self canEncode:method]) return;
  HMDevice* const device = _queue->_device;
  auto* const made = (HMEvent*)event;
  if (![made isKindOfClass:HM_CLASS(HMEvent)] || (made->_device && made->_device != device)) {
    _state->list.Fail(hostmetal::kInvalidResource,
                      std::string("[") + method + "] the event is nil or not of this device");
    return;
  }
  hostmetal::Command& command = _state->list.Add(type);
  command.event = made->_event;
  command.event_value = value;
  _state->Use(event);
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self encode:CommandType::kWait event:event value:value];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  [self encode:CommandType::kSignal event:event value:value];
}

- (void)useResidencySet:(id<MTLResidencySet>)set {
  [self useResidencySets:&set count:1];
}
- (void)useResidencySets:(const id<MTLResidencySet>[])sets count:(NSUInteger)count {
  if (_state->committed.load(std::memory_order_relaxed)) {
    return Complain("useResidencySet:", "the command buffer is committed");
  }
  for (NSUInteger i = 0; i < count; ++i) {
    HMResidencySet* set = hostmetal::ResidencySetOf(_queue->_device, sets[i]);
    if (!set) {
      _state->list.Fail(hostmetal::kInvalidResource,
                        "[useResidencySet] the set is nil or not of this device");
      continue;
    }
    // Whatever retainedReferences says: the set may change or go as soon as this has returned.
    _state->resources.push_back([set newCommitted]);
  }
}

- (void)pushDebugGroup:(NSString*)string {
  _state->debug_groups.push_back(hostmetal::ToString(string));
}
- (void)popDebugGroup {
  if (_state->debug_groups.empty()) return Complain("popDebugGroup", "no group is open");
  _state->debug_groups.pop_back();
}

@end
