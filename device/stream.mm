// The stream: see stream.h.

#include "device/stream.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "device/device.h"
#include "device/fork.h"
#include "kernels/runtime/labels.h"

namespace metal_device {
namespace {

// Marks the threads that run on some stream's queue.
const char kOnStreamQueue = 0;

// Every stream alive. Leaked, as are TensorFlow's streams: threads may still run while the process
// exits.
struct Streams {
  std::mutex mutex;
  std::vector<MetalDeviceStream*> all;
};
Streams& AllStreams() {
  static Streams* streams = new Streams();
  return *streams;
}

// Retained; of all devices for nullptr.
std::vector<MetalDeviceStream*> StreamsOf(const Device* device) {
  std::vector<MetalDeviceStream*> streams;
  std::lock_guard<std::mutex> lock(AllStreams().mutex);
  for (MetalDeviceStream* stream : AllStreams().all) {
    if (device == nullptr || [stream device] == device) streams.push_back([stream retain]);
  }
  return streams;
}

}  // namespace

StreamOptions& GlobalStreamOptions() {
  static StreamOptions* options = new StreamOptions();
  return *options;
}

void Synchronize(const Device* device) {
  if (Forked()) return;
  const std::vector<MetalDeviceStream*> streams = StreamsOf(device);
  const bool on_queue = dispatch_get_specific(&kOnStreamQueue) != nullptr;
  // All are committed before the first is waited for: one may wait for another.
  if (!on_queue) {
    for (MetalDeviceStream* stream : streams) [stream flush];
  }
  for (MetalDeviceStream* stream : streams) {
    [stream waitUntilIdle];
    [stream release];
  }
}

void Reap(const Device* device) {
  if (Forked()) return;
  for (MetalDeviceStream* stream : StreamsOf(device)) {
    [stream reap];
    [stream release];
  }
}

void CollectAllPasses() {
  for (MetalDeviceStream* stream : StreamsOf(nullptr)) {
    [stream collectPasses];
    [stream release];
  }
}

}  // namespace metal_device

using metal_device::AllStreams;
using metal_device::Forked;
using metal_device::GlobalStreamOptions;

static void DropWait(MetalDeviceStream* stream, id<MTLSharedEvent> event) {
  [stream release];
  [event release];
}

// With labels, errors say in which encoder they happened.
static id<MTLCommandBuffer> NewCommandBuffer(id<MTLCommandQueue> queue) {
  if (!metal_ops::Labelled()) return [queue commandBuffer];
  auto* const wanted = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
  [wanted setErrorOptions:MTLCommandBufferErrorOptionEncoderExecutionStatus];
  return [queue commandBufferWithDescriptor:wanted];
}

// ", in 'Conv2D model/conv/Conv2D'"; "" where nothing says so.
static std::string FaultedEncoder(NSError* error) {
  for (id<MTLCommandBufferEncoderInfo> info in
       [[error userInfo] objectForKey:MTLCommandBufferEncoderInfoErrorKey]) {
    if ([info errorState] != MTLCommandEncoderErrorStateFaulted || [[info label] length] == 0)
      continue;
    return std::string(", in '") + [[info label] UTF8String] + "'";
  }
  return "";
}

@implementation MetalDeviceStream

- (instancetype)initWithDevice:(metal_device::Device*)device {
  if ((self = [super init])) {
    metal_device::WatchForks();
    _device = device;
    _commandQueue = [device->metal newCommandQueue];
    _timeline = [device->metal newSharedEvent];
    _queue = dispatch_queue_create("metal_ops.device.stream", DISPATCH_QUEUE_SERIAL);
    if (_commandQueue == nil || _timeline == nil || _queue == nil) {
      [self release];
      return nil;
    }
    dispatch_queue_set_specific(_queue, &metal_device::kOnStreamQueue, self, nullptr);
    static std::atomic<uint32_t> streams{0};
    _number = ++streams;
    std::lock_guard<std::mutex> lock(AllStreams().mutex);
    AllStreams().all.push_back(self);
  }
  return self;
}

- (void)dealloc {
  {
    std::lock_guard<std::mutex> lock(AllStreams().mutex);
    std::vector<MetalDeviceStream*>& all = AllStreams().all;
    all.erase(std::remove(all.begin(), all.end(), self), all.end());
  }
  for (const Wait& wait : _waits) DropWait(wait.stream, wait.event);
  for (const Running& running : _running) [running.buffer release];
  [_current release];
  metal_device::DeleteProfile(_profile);
  [_timeline release];
  [_commandQueue release];
  if (_queue != nil) dispatch_release(_queue);
  [super dealloc];
}

- (metal_device::Device*)device {
  return _device;
}

// ---- TF_MetalStream: what kernels call, on the queue --------------------------------------------

- (dispatch_queue_t)queue {
  _has_kernels = true;
  return Forked() ? metal_device::QueueOfForked() : _queue;
}

// In a forked process nil, to which kernels can encode anything.
- (id<MTLCommandBuffer>)currentCommandBuffer {
  if (Forked()) return nil;
  if (_current == nil) {
    _current = [NewCommandBuffer(_commandQueue) retain];
    std::vector<Wait> waits;
    {
      std::lock_guard<std::mutex> lock(_mutex);
      waits.swap(_waits);
    }
    for (const Wait& wait : waits) {
      [_current encodeWaitForEvent:wait.event value:wait.value];
      DropWait(wait.stream, wait.event);
    }
  }
  return _current;
}

- (void)commit {
  if (Forked()) return;
  if (GlobalStreamOptions().synchronous) {
    [self commitAndWait];
  } else if (++_encoded >= GlobalStreamOptions().batch) {
    [self commitCurrent];
  }
}

- (void)commitAndWait {
  if (Forked()) return;
  bool waits;
  {
    std::lock_guard<std::mutex> lock(_mutex);
    waits = !_waits.empty();
  }
  if (waits)
    [self currentCommandBuffer];  // an empty one: "done" includes the work that this stream waits
                                  // for
  [self waitUntil:[self commitCurrent]];
}

// ---- what the device calls ----------------------------------------------------------------------

- (uint64_t)commitCurrent {
  // Work that waits on another device may be a copy of a tensor that this one has made, and has to
  // find its failure reported.
  return [self commitCurrentAndSignal:metal_device::Devices().size() == 1];
}

// The real commit. On the queue. With `signals`, the timeline has the number when the device is
// done; else another part sets it.
- (uint64_t)commitCurrentAndSignal:(bool)signals {
  _encoded = 0;
  const uint64_t number = _current == nil ? _submitted : _submitted + 1;
  if (_current != nil) {
    // Other streams' command buffers wait for it on the device; a failed one signals, too.
    if (signals) [_current encodeSignalEvent:_timeline value:number];
    const uint64_t encoded =
        metal_device::IsProfiled() ? metal_device::BeginBuffer(&_profile, number) : 0;
    const bool handled = !signals || encoded != 0;
    if (handled) {
      [_current addCompletedHandler:^(id<MTLCommandBuffer> buffer) {
        [self finish:number buffer:buffer encoded:encoded];
      }];
    }
    id<MTLCommandBuffer> committed = _current;
    _current = nil;
    {
      std::lock_guard<std::mutex> lock(_mutex);
      [self reapLocked];
      _submitted = number;
      _running.push_back({number, committed, handled, false});
    }
    [committed commit];
  }
  return number;
}

- (void)reportFailureOf:(id<MTLCommandBuffer>)buffer {
  if ([buffer status] != MTLCommandBufferStatusError) return;
  NSString* text = [[buffer error] localizedDescription];
  ReportError(*_device, (text == nil ? std::string("a command buffer failed, no reason given")
                                     : std::string([text UTF8String])) +
                            FaultedEncoder([buffer error]));
}

// With the lock. A failed command buffer also counts as done: a waiting thread must wake up to hear
// of it.
- (bool)isFirstDone {
  if (_running.empty()) return false;
  const Running& first = _running.front();
  return first.handled ? first.finished : [first.buffer status] >= MTLCommandBufferStatusCompleted;
}

// With the lock.
- (void)reapLocked {
  const uint64_t before = _completed;
  while ([self isFirstDone]) {
    const Running& first = _running.front();
    if (!first.handled) [self reportFailureOf:first.buffer];
    _completed = first.number;
    [first.buffer autorelease];  // its end may need the lock
    _running.pop_front();
  }
  if (_completed != before) _progress.notify_all();
}

- (void)reap {
  if (Forked()) return;
  {
    std::lock_guard<std::mutex> lock(_mutex);
    if (![self isFirstDone]) return;
  }
  @autoreleasepool {
    std::lock_guard<std::mutex> lock(_mutex);
    [self reapLocked];
  }
}

// On a thread of the Metal runtime, after the work of command buffer `number`, whose first pass was
// asked for at `encoded`; 0 where no profiler ran.
- (void)finish:(uint64_t)number buffer:(id<MTLCommandBuffer>)buffer encoded:(uint64_t)encoded {
  @autoreleasepool {
    if (encoded != 0) metal_device::FinishBuffer(_profile, buffer, _number, number, encoded);
    [self reportFailureOf:buffer];
    if (metal_device::Devices().size() > 1 && [_timeline signaledValue] < number) {
      [_timeline setSignaledValue:number];
    }
    std::lock_guard<std::mutex> lock(_mutex);
    for (Running& running : _running) {
      if (running.number == number) running.finished = true;
    }
    [self reapLocked];
  }
}

- (uint64_t)flush {
  if (Forked()) return 0;
  __block uint64_t number = 0;
  dispatch_sync(_queue, ^{
    @autoreleasepool {
      number = [self commitCurrent];
    }
  });
  return number;
}

- (bool)isDone:(uint64_t)number {
  [self reap];
  if (Forked()) return true;
  std::lock_guard<std::mutex> lock(_mutex);
  return _completed >= number;
}

- (void)waitUntil:(uint64_t)number {
  if (Forked()) return;
  // Completed buffers are released at the pool's end, without the lock.
  @autoreleasepool {
    std::unique_lock<std::mutex> lock(_mutex);
    [self reapLocked];
    if (_completed >= number) return;
    const metal_device::HostScope waits(static_cast<uint32_t>(metal_device::EventKind::kWait),
                                        "wait for the device");
    // All before it are done with the last one, mostly.
    const auto last = std::find_if(_running.begin(), _running.end(), [&](const Running& running) {
      return running.number >= number;
    });
    id<MTLCommandBuffer> buffer = last == _running.end() ? nil : last->buffer;
    while (_completed < number) {
      [buffer retain];
      lock.unlock();
      [buffer waitUntilCompleted];  // it may do the work on this thread
      [buffer release];
      lock.lock();
      [self reapLocked];
      if (_completed >= number) return;
      const Running& first = _running.front();
      buffer = first.buffer;
      if (first.handled) {
        const uint64_t handled = first.number;
        _progress.wait(lock, [&] { return _completed >= handled; });
        buffer = nil;
      }
    }
  }
}

- (void)waitUntilIdle {
  if (Forked()) return;
  std::vector<Wait> waits;
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(_mutex);
    waits = _waits;
    number = _submitted;
    for (const Wait& wait : waits) {
      [wait.stream retain];
      [wait.event retain];
    }
  }
  [self waitUntil:number];
  for (const Wait& wait : waits) {
    // A host callback's point belongs to this stream's own last command buffer, so it is signalled
    // by now.
    if (wait.stream != nil) [wait.stream waitUntil:wait.value];
    DropWait(wait.stream, wait.event);
  }
}

- (bool)isIdle {
  if (Forked()) return true;
  __block bool idle = false;
  dispatch_sync(_queue, ^{
    std::lock_guard<std::mutex> lock(self->_mutex);
    // Waits that are over are dropped here, or they would pile up on a stream that only ever copies
    // on the host.
    auto done = [](const Wait& wait) {
      if ([wait.event signaledValue] < wait.value) return false;
      DropWait(wait.stream, wait.event);
      return true;
    };
    self->_waits.erase(std::remove_if(self->_waits.begin(), self->_waits.end(), done),
                       self->_waits.end());
    [self reapLocked];
    idle = self->_current == nil && self->_completed >= self->_submitted && self->_waits.empty();
  });
  return idle;
}

- (bool)onlyWaits {
  if (Forked() || _has_kernels) return false;
  __block bool only = false;
  dispatch_sync(_queue, ^{
    std::lock_guard<std::mutex> lock(self->_mutex);
    [self reapLocked];
    only = self->_current == nil && self->_completed >= self->_submitted;
  });
  return only;
}

- (void)waitFor:(MetalDeviceStream*)other until:(uint64_t)number {
  if (Forked() || other == self || [other isDone:number]) return;
  dispatch_sync(_queue, ^{
    @autoreleasepool {
      [self addWait:other event:other->_timeline value:number];
    }
  });
}

// On the queue.
- (void)addWait:(MetalDeviceStream*)other event:(id<MTLSharedEvent>)event value:(uint64_t)value {
  if (_current != nil) {
    [_current encodeWaitForEvent:event value:value];
    return;
  }
  std::lock_guard<std::mutex> lock(_mutex);
  for (Wait& wait : _waits) {
    if (wait.event == event) {
      wait.value = std::max(wait.value, value);
      return;
    }
  }
  _waits.push_back({[other retain], [event retain], value});
}

- (id<MTLComputeCommandEncoder>)computeEncoderFor:(const metal_device::ProfiledPass&)pass {
  id<MTLCommandBuffer> const buffer = [self currentCommandBuffer];
  return metal_device::ProfiledCompute(&_profile, buffer, _submitted + 1, pass);
}

- (metal_device::StreamProfile*)sampleBefore:(const metal_device::ProfiledPass&)pass
                                          on:(id<MTLComputeCommandEncoder>)encoder {
  return metal_device::SampleBefore(&_profile, _device->metal, _submitted + 1, encoder, pass);
}

- (id<MTLBlitCommandEncoder>)blitEncoderFor:(const metal_device::ProfiledPass&)pass {
  if (!metal_device::IsProfiled()) return [[self currentCommandBuffer] blitCommandEncoder];
  id<MTLCommandBuffer> const buffer = [self currentCommandBuffer];
  return metal_device::ProfiledBlit(&_profile, buffer, _submitted + 1, pass);
}

- (void)collectPasses {
  if (Forked()) return;
  dispatch_sync(_queue, ^{
    @autoreleasepool {
      uint64_t completed;
      {
        std::lock_guard<std::mutex> lock(self->_mutex);
        [self reapLocked];
        completed = self->_completed;
      }
      metal_device::CollectPasses(self->_profile, self->_number, completed);
    }
  });
}

- (void)encode:(const metal_device::ProfiledPass&)pass
          blit:(const std::function<void(id<MTLBlitCommandEncoder>)>&)body {
  if (Forked()) return;
  // A block would copy them.
  const std::function<void(id<MTLBlitCommandEncoder>)>* encode = &body;
  const metal_device::ProfiledPass* what = &pass;
  dispatch_sync(_queue, ^{
    @autoreleasepool {
      id<MTLBlitCommandEncoder> blit = [self blitEncoderFor:*what];
      (*encode)(blit);
      [blit endEncoding];
      [self commit];
    }
  });
}

- (uint64_t)runOnHost:(std::function<void()>)body {
  if (Forked()) {
    body();  // a waiting thread must wake up
    return 0;
  }
  auto* work = new std::function<void()>(std::move(body));
  id<MTLSharedEvent> finished = [[_commandQueue device] newSharedEvent];
  __block uint64_t number = 0;
  dispatch_sync(_queue, ^{
    @autoreleasepool {
      id<MTLCommandBuffer> buffer = [self currentCommandBuffer];
      uint64_t next;
      {
        std::lock_guard<std::mutex> lock(self->_mutex);
        next = self->_submitted + 1;
      }
      [buffer addCompletedHandler:^(id<MTLCommandBuffer> done) {
        @autoreleasepool {
          [self reportFailureOf:done];
          (*work)();
          delete work;
          // In this order: the next command buffer, which waits for `finished`, sets it further.
          [self->_timeline setSignaledValue:next];
          [finished setSignaledValue:1];
        }
      }];
      number = [self commitCurrentAndSignal:false];
      [self addWait:nil event:finished value:1];
    }
  });
  [finished release];
  return number;
}

@end
