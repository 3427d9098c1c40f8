// The stream: a serial queue of command buffers with tensorflow-metal's batching, and the waits on
// it.
//
// Every command buffer committed gets the next number, starting at 1. A point in the stream is such
// a number, so an event is a (stream, number) pair and "has it happened" is a comparison. The
// number of the last one completed is also the value of `timeline`, on which the command buffers of
// other streams wait.

#ifndef METAL_OPS_DEVICE_STREAM_H_
#define METAL_OPS_DEVICE_STREAM_H_

#import <Metal/Metal.h>
#include <dispatch/dispatch.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/profiler.h"
#include "kernels/runtime/tf_metal_stream.h"

@interface MetalDeviceStream : NSObject <TF_MetalStream> {
  metal_device::Device* _device;
  id<MTLCommandQueue> _commandQueue;
  dispatch_queue_t _queue;
  id<MTLCommandBuffer> _current;   // touched on _queue only
  std::atomic<bool> _has_kernels;  // whether one has asked for the queue
  int _encoded;  // kernels that said `commit` since the last real one; on _queue only
  metal_device::StreamProfile* _profile;  // set once a profiler has run; changed on _queue only
  uint32_t _number;                       // among the process' streams, from 1
  id<MTLSharedEvent> _timeline;

  std::mutex _mutex;  // guards the members below
  std::condition_variable _progress;
  uint64_t _submitted;  // changed on _queue only
  uint64_t _completed;
  struct Running {
    uint64_t number;
    id<MTLCommandBuffer> buffer;  // retained
    // Done when its handler says so. Others have none, as a handler costs another thread's waking:
    // callers look at their status.
    bool handled;
    bool finished;  // its handler has run
  };
  std::deque<Running> _running;
  struct Wait {
    MetalDeviceStream* stream;  // retained; nil for an event that a host callback signals
    id<MTLSharedEvent> event;   // retained
    uint64_t value;
  };
  std::vector<Wait> _waits;  // the waits of the next command buffer
}

- (instancetype)initWithDevice:(metal_device::Device*)device;
- (metal_device::Device*)device;

// Commits the encoded work. Returns the number that stands for "all work so far".
- (uint64_t)flush;
// Looks at completed work, whose failures are reported from here on.
- (void)reap;
- (bool)isDone:(uint64_t)number;
- (void)waitUntil:(uint64_t)number;
// Blocks until all work so far, and all that it waits for, is done.
- (void)waitUntilIdle;
// True if nothing is encoded, running or waited for: the host may touch memory at once.
- (bool)isIdle;
// True if no kernel has ever had its queue and nothing is encoded or running, whatever the next
// command buffer will wait for.
- (bool)onlyWaits;

// Later work starts after `number` of `other`.
- (void)waitFor:(MetalDeviceStream*)other until:(uint64_t)number;

// Encodes copies or fills in the stream's order. `pass` says which, to the profiler.
- (void)encode:(const metal_device::ProfiledPass&)pass
          blit:(const std::function<void(id<MTLBlitCommandEncoder>)>&)body;

// On the queue: an encoder whose times the profiler gets, if one runs.
- (id<MTLComputeCommandEncoder>)computeEncoderFor:(const metal_device::ProfiledPass&)pass;
- (id<MTLBlitCommandEncoder>)blitEncoderFor:(const metal_device::ProfiledPass&)pass;
// On the queue, around a launch on an encoder of the current command buffer: see SampleBefore.
- (metal_device::StreamProfile*)sampleBefore:(const metal_device::ProfiledPass&)pass
                                          on:(id<MTLComputeCommandEncoder>)encoder;
// The profiler gets the passes that are done.
- (void)collectPasses;

// Runs `body` on the host after all work so far; later work starts after it. Returns the number of
// that point.
- (uint64_t)runOnHost:(std::function<void()>)body;

@end

namespace metal_device {

// How commits are batched and whether every one is waited for.
struct StreamOptions {
  int batch = 2;
  bool synchronous = false;
};
StreamOptions& GlobalStreamOptions();

// Waits for every stream of a device, or of all devices. On a stream's own queue, where committing
// is not possible, only for committed work.
void Synchronize(const Device* device);
inline void SynchronizeAll() { Synchronize(nullptr); }

// Failures of completed work are reported from here on.
void Reap(const Device* device);
inline void ReapAll() { Reap(nullptr); }

// All streams' passes that are done.
void CollectAllPasses();

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_STREAM_H_
