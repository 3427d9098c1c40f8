// The device's work, while a profiler runs: metal_ops.profiler through the C interface at the end of
// profiler.mm, TensorFlow's profiler through TF_InitProfiler (profiler_plugin.mm).

#ifndef METAL_OPS_DEVICE_PROFILER_H_
#define METAL_OPS_DEVICE_PROFILER_H_

#import <Metal/Metal.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/runtime/profile.h"

namespace metal_device {

using metal_ops::PassKind;
using metal_ops::ProfiledPass;

// Goes on from PassKind.
enum class EventKind : uint32_t { kToHost = 4, kWait = 5, kOp = 6, kCommandBuffer = 7 };

// Something that took time. python/metal_ops/profiler.py reads it as it lies here.
struct ProfileEvent {
  uint64_t start, end;  // nanoseconds of CLOCK_MONOTONIC; of a pass by the device's clock
  uint64_t encoded;     // when the host asked for it
  uint64_t bytes;
  uint64_t thread;          // the host's that asked
  uint32_t kind;            // PassKind or EventKind
  uint32_t name, op, node;  // numbers of strings
  uint32_t stream, buffer;  // the stream's number from 1, its command buffer's; 0: by the host
  uint32_t grid[3], group[3];
};

struct Profile {
  std::vector<ProfileEvent> events;
  std::vector<std::string> strings;  // the first is empty
  uint64_t began = 0, ended = 0;
  uint64_t dropped = 0;  // events beyond the limit
};

// Both may profile at the same time, each its own stretch.
enum class Profiler : uint32_t { kPython = 1, kTensorFlow = 2 };

// Waits for the device, so that only later work is seen. False: this one profiles already, or the
// device takes no times, which `why` says.
bool StartProfile(Profiler who, id<MTLDevice> device, uint64_t most_events, std::string* why);
// Waits for the device, so that all that was asked for is seen.
Profile StopProfile(Profiler who);

// Whether a profiler runs; each does nothing otherwise.
bool IsProfiled();
uint64_t Nanoseconds();

// The passes of one stream, and the samples of their times: many are resolved at once.
class StreamProfile;
void DeleteProfile(StreamProfile* profile);
// On the stream's queue. The pass is one of the command buffer that will have this number.
id<MTLComputeCommandEncoder> ProfiledCompute(StreamProfile** profile, id<MTLCommandBuffer> buffer,
                                             uint64_t number, const ProfiledPass& pass);
// The same for a launch that goes on an encoder with others: nullptr where it gets no time, else the
// profile to tell when it is encoded.
StreamProfile* SampleBefore(StreamProfile** profile, id<MTLDevice> device, uint64_t number,
                            id<MTLComputeCommandEncoder> encoder, const ProfiledPass& pass);
void SampleAfter(StreamProfile* profile, id<MTLComputeCommandEncoder> encoder);
id<MTLBlitCommandEncoder> ProfiledBlit(StreamProfile** profile, id<MTLCommandBuffer> buffer,
                                       uint64_t number, const ProfiledPass& pass);
// On the queue, as command buffer `number` is committed: when its first pass was asked for, or now.
uint64_t BeginBuffer(StreamProfile** profile, uint64_t number);
// It is done.
void FinishBuffer(StreamProfile* profile, id<MTLCommandBuffer> buffer, uint32_t stream,
                  uint64_t number, uint64_t encoded);
// On the queue: the recorder gets the passes of all command buffers up to `completed`.
void CollectPasses(StreamProfile* profile, uint32_t stream, uint64_t completed);

// The host's own work, until the scope ends: a copy, or waiting.
class HostScope {
 public:
  HostScope(uint32_t kind, const char* name, uint64_t bytes = 0)
      : kind_(kind), name_(name), bytes_(bytes), began_(IsProfiled() ? Nanoseconds() : 0) {}
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  uint32_t kind_;
  const char* name_;
  uint64_t bytes_, began_;
};

// An XSpace (tsl/profiler/protobuf/xplane.proto), serialised.
std::string ToXSpace(const Profile& profile, const std::string& hardware);

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_PROFILER_H_
