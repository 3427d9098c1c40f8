// Counters of launches: see counters.h.

#include "kernels/runtime/counters.h"

#include <map>
#include <mutex>

namespace metal_ops {
namespace {

struct OfStream {
  id<MTLBuffer> buffer = nil;
  uint32_t launches = 0;
};

// All that begins above 0 and ends below 2^32.
constexpr uint32_t kMostLaunches = ~uint32_t{0} / LaunchCounters::kCounts;

}  // namespace

Status NextCounters(id<MTLDevice> device, const void* stream, LaunchCounters* counters) {
  static std::mutex mutex;
  // A stream that takes a dead one's place, whose work is done, goes on with its numbers.
  static auto* const streams = new std::map<const void*, OfStream>();
  const std::lock_guard<std::mutex> lock(mutex);
  OfStream& own = (*streams)[stream];
  if (own.buffer == nil || [own.buffer device] != device || own.launches == kMostLaunches) {
    [own.buffer release];  // command buffers keep it
    own.launches = 0;
    // Metal clears new buffers.
    own.buffer = [device newBufferWithLength:LaunchCounters::kNumbers * sizeof(uint32_t)
                                     options:MTLResourceStorageModePrivate];
    if (own.buffer == nil) return ResourceExhausted("out of device memory for a stream's counters");
  }
  *counters = {own.buffer, ++own.launches * LaunchCounters::kCounts};
  return Status();
}

}  // namespace metal_ops
