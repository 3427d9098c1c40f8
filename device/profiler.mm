// Recordings that are no passes: ops, copies and waits of the host; and the sessions that profile.
// See profiler.h.

#include "device/profiler.h"

#import <Foundation/Foundation.h>
#include <time.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "device/memory.h"
#include "device/profiler_recorder.h"
#include "device/stream.h"

#define METAL_DEVICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace metal_device {
namespace {

// nil: another device's.
MetalDeviceStream* Ours(void* stream) {
  static const Class ours = [MetalDeviceStream class];
  id object = (id)stream;
  return [object class] == ours ? (MetalDeviceStream*)object : nil;
}

void* HookBefore(void* stream, void* encoder, const ProfiledPass& pass) {
  return [Ours(stream) sampleBefore:pass on:(id<MTLComputeCommandEncoder>)encoder];
}

void HookAfter(void* sampled, void* encoder) {
  SampleAfter(static_cast<StreamProfile*>(sampled), (id<MTLComputeCommandEncoder>)encoder);
}

void* HookCompute(void* stream, const ProfiledPass& pass) {
  return (void*)[Ours(stream) computeEncoderFor:pass];
}

void* HookBlit(void* stream, const ProfiledPass& pass) {
  return (void*)[Ours(stream) blitEncoderFor:pass];
}

// The end, or a launch before it, looks up the names.
void HookBegin(metal_ops::RunningOp* op) { op->began = Nanoseconds(); }

void HookEnd(const metal_ops::RunningOp& op) {
  if (!NumberOf(op)) return;
  Lane& lane = Lane::Mine();
  ProfileEvent& event = lane.Next();
  event.start = event.encoded = op.began;
  event.end = Nanoseconds();
  event.kind = static_cast<uint32_t>(EventKind::kOp);
  event.name = event.op = op.numbers[0];
  event.node = op.numbers[1];
  lane.Done();
}

metal_ops::ProfilerHooks& Hooks() {
  static auto* const hooks = new metal_ops::ProfilerHooks{
      {0}, {false}, HookBefore, HookAfter, HookCompute, HookBlit, HookBegin, HookEnd};
  return *hooks;
}

Clocks ReadClocks(id<MTLDevice> device) {
  MTLTimestamp cpu = 0, gpu = 0;
  [device sampleTimestamps:&cpu gpuTimestamp:&gpu];
  return {Nanoseconds(), cpu, gpu};
}

id<MTLCounterSet> TimestampsOf(id<MTLDevice> device) {
  if (![device supportsCounterSampling:MTLCounterSamplingPointAtStageBoundary]) return nil;
  for (id<MTLCounterSet> set in [device counterSets]) {
    if ([[set name] isEqualToString:MTLCommonCounterSetTimestamp]) return set;
  }
  return nil;
}

// With the recorder's lock, while no profiler runs: strings have new numbers.
void StartAnew(Recorder& recorder) {
  recorder.generation.fetch_add(1);
  recorder.pages = {};
  recorder.stored = 0;
  for (Lane* lane : recorder.lanes) lane->Clear();
  recorder.numbers.clear();
  recorder.strings.assign(1, "");
}

using Entry = std::pair<uint64_t, const ProfileEvent*>;  // by when it was asked for

// Sorts entries that are mostly in order: pages of a thread or a stream, one after the other.
void MergeRuns(std::vector<Entry>* entries) {
  std::vector<ptrdiff_t> bounds = {0};
  for (size_t i = 1; i < entries->size(); ++i) {
    if ((*entries)[i] < (*entries)[i - 1]) bounds.push_back(static_cast<ptrdiff_t>(i));
  }
  bounds.push_back(static_cast<ptrdiff_t>(entries->size()));
  std::vector<Entry> other(bounds.size() > 2 ? entries->size() : 0);
  while (bounds.size() > 2) {
    const auto from = entries->begin(), to = other.begin();
    std::vector<ptrdiff_t> merged = {0};
    for (size_t i = 0; i + 1 < bounds.size(); i += 2) {
      // The last run may have no other.
      const ptrdiff_t end = bounds[std::min(i + 2, bounds.size() - 1)];
      std::merge(from + bounds[i], from + bounds[i + 1], from + bounds[i + 1], from + end,
                 to + bounds[i]);
      merged.push_back(end);
    }
    bounds.swap(merged);
    entries->swap(other);
  }
}

// On the host's clock, which the device's may run beside at a pace of its own.
class HostTimes {
 public:
  HostTimes(const Clocks& first, const Clocks& last)
      : first_(first),
        pace_(last.gpu > first.gpu ? static_cast<double>(last.host - first.host) /
                                         static_cast<double>(last.gpu - first.gpu)
                                   : 1.0) {}
  void Move(ProfileEvent* event) const {
    if (event->kind == static_cast<uint32_t>(EventKind::kCommandBuffer)) {
      event->start += first_.host - first_.cpu;
      event->end += first_.host - first_.cpu;
    } else if (event->stream != 0) {
      event->start = Of(event->start);
      event->end = Of(event->end);
    }
  }

 private:
  uint64_t Of(uint64_t gpu) const {
    const double since = static_cast<double>(static_cast<int64_t>(gpu - first_.gpu)) * pace_;
    return first_.host + static_cast<uint64_t>(static_cast<int64_t>(since));
  }
  const Clocks first_;
  const double pace_;
};

}  // namespace

bool IsProfiled() { return Hooks().on.load(std::memory_order_relaxed) != 0; }

uint64_t Nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

bool StartProfile(Profiler who, id<MTLDevice> device, uint64_t most_events, std::string* why) {
  const int index = static_cast<int>(who) - 1;
  const uint32_t bit = static_cast<uint32_t>(who);
  Recorder& recorder = TheRecorder();
  {
    const std::lock_guard<std::mutex> lock(recorder.mutex);
    if (Hooks().on.load() & bit) {
      *why = "it is being profiled already; let one trace end before the next";
      return false;
    }
    id<MTLCounterSet> timestamps = TimestampsOf(device);
    if (timestamps == nil) {
      *why = "it takes no times at the boundaries of passes (MTLCommonCounterSetTimestamp)";
      return false;
    }
    [recorder.timestamps autorelease];
    recorder.timestamps = [timestamps retain];
    recorder.device = device;
  }
  SynchronizeAll();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  if (Hooks().on.load() == 0) {
    StartAnew(recorder);
    recorder.first = ReadClocks(device);
    recorder.first_host.store(recorder.first.host);
    Hooks().samples_launches.store(
        [device supportsCounterSampling:MTLCounterSamplingPointAtDispatchBoundary]);
  }
  recorder.began[index] = Nanoseconds();
  recorder.most[index] = most_events;
  recorder.dropped[index] = 0;
  Hooks().on.fetch_or(bit);
  return true;
}

Profile StopProfile(Profiler who) {
  const int index = static_cast<int>(who) - 1;
  const uint32_t bit = static_cast<uint32_t>(who);
  Recorder& recorder = TheRecorder();
  Profile profile;
  if (!(Hooks().on.load() & bit)) return profile;
  SynchronizeAll();
  CollectAllPasses();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  for (Lane* lane : recorder.lanes) lane->Collect(recorder);
  profile.ended = Nanoseconds();
  profile.began = recorder.began[index];
  profile.dropped = recorder.dropped[index];
  profile.strings.assign(recorder.strings.begin(), recorder.strings.end());
  const HostTimes host_times(recorder.first, ReadClocks(recorder.device));
  // An event is a hundred bytes, so it is moved once, when its place is known.
  std::vector<Entry> order;
  order.reserve(recorder.stored);
  for (const Page& page : recorder.pages) {
    for (const ProfileEvent& event : page) {
      if (event.encoded >= profile.began) order.emplace_back(event.encoded, &event);
    }
  }
  MergeRuns(&order);
  if (order.size() > recorder.most[index]) {  // by pages it has come to more
    profile.dropped += order.size() - recorder.most[index];
    order.resize(recorder.most[index]);
  }
  profile.events.reserve(order.size());
  for (const auto& [encoded, event] : order) {
    profile.events.push_back(*event);
    host_times.Move(&profile.events.back());
  }
  recorder.most[index] = 0;
  if (Hooks().on.fetch_and(~bit) == bit) StartAnew(recorder);
  return profile;
}

HostScope::~HostScope() {
  if (began_ == 0 || !IsProfiled()) return;
  Lane& lane = Lane::Mine();
  ProfileEvent& event = lane.Next();
  event.start = event.encoded = began_;
  event.end = Nanoseconds();
  event.bytes = bytes_;
  event.kind = kind_;
  event.name = NumberOf(name_);
  lane.Done();
}

}  // namespace metal_device

// ---- what kernels and metal_ops.profiler ask ----------------------------------------------------

using metal_device::Profile;

// Its name changes as the hooks do: ops that were built with other headers find none, and are seen by
// their command buffers alone.
METAL_DEVICE_EXPORT const void* metal_device_profiler_hooks() { return &metal_device::Hooks(); }

// Null, or why not, until the thread's next call.
METAL_DEVICE_EXPORT const char* metal_device_profile_start(uint64_t most_events) {
  thread_local std::string why;
  @autoreleasepool {
    const bool started = metal_device::StartProfile(
        metal_device::Profiler::kPython, metal_device::Devices()[0]->metal, most_events, &why);
    return started ? nullptr : why.c_str();
  }
}

METAL_DEVICE_EXPORT Profile* metal_device_profile_stop() {
  @autoreleasepool {
    return new Profile(metal_device::StopProfile(metal_device::Profiler::kPython));
  }
}

METAL_DEVICE_EXPORT const void* metal_device_profile_events(const Profile* profile,
                                                            uint64_t* count) {
  *count = profile->events.size();
  return profile->events.data();
}

// All strings, each up to a zero.
METAL_DEVICE_EXPORT const char* metal_device_profile_text(const Profile* profile, uint64_t* bytes) {
  thread_local std::string text;
  text.clear();
  for (const std::string& string : profile->strings) text.append(string).push_back('\0');
  *bytes = text.size();
  return text.data();
}

// When it began and ended, on CLOCK_MONOTONIC, and how many events were beyond the limit.
METAL_DEVICE_EXPORT void metal_device_profile_span(const Profile* profile, uint64_t* span) {
  span[0] = profile->began;
  span[1] = profile->ended;
  span[2] = profile->dropped;
}

METAL_DEVICE_EXPORT void metal_device_profile_delete(Profile* profile) { delete profile; }
