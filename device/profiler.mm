// The recorder: see profiler.h.
//
// Apple's GPUs take times at the start and the end of a pass, so a launch has a pass of its own while
// somebody profiles. Nothing is written to the host's lists while the work runs: a command buffer's
// times are collected when it is done.

#include "device/profiler.h"

#import <Foundation/Foundation.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "device/memory.h"
#include "device/stream.h"

#define METAL_DEVICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace metal_device {

class BufferProfile {
 public:
  ~BufferProfile() {
    for (id<MTLCounterSampleBuffer> buffer : samples) [buffer release];
    [compute.descriptor release];
    [blit.descriptor release];
  }
  // A pass, and where it says what takes its times.
  template <typename Descriptor, typename Attachment>
  struct Pass {
    Descriptor* descriptor = nil;
    Attachment* attachment = nil;              // the descriptor's
    id<MTLCounterSampleBuffer> samples = nil;  // the attachment's
  };
  id<MTLDevice> device = nil;
  std::vector<id<MTLCounterSampleBuffer>> samples;  // kSamples each
  std::vector<ProfileEvent> passes;
  Pass<MTLComputePassDescriptor, MTLComputePassSampleBufferAttachmentDescriptor> compute;
  Pass<MTLBlitPassDescriptor, MTLBlitPassSampleBufferAttachmentDescriptor> blit;
};

namespace {

constexpr NSUInteger kSamples = 64, kPasses = kSamples / 2;
constexpr int kProfilers = 2;

// A text whose number was asked for, by where the asker keeps it: names of shaders and nodes mostly
// lie where they lay the last time.
struct Known {
  const char* at = nullptr;
  std::string_view text;  // the recorder's own
  uint32_t number = 0;
};

// The host's clock and the device's, at one time.
struct Clocks {
  uint64_t host, cpu, gpu;
};

struct Recorder {
  std::mutex mutex;  // guards what follows
  std::vector<ProfileEvent> events;
  std::deque<std::string> strings;  // which stay where they are
  std::unordered_map<std::string_view, uint32_t> numbers;
  std::array<Known, 1024> known;  // by hash of the address
  uint64_t began[kProfilers] = {}, most[kProfilers] = {}, dropped[kProfilers] = {};
  id<MTLDevice> device = nil;
  id<MTLCounterSet> timestamps = nil;
  Clocks first;  // when nobody had profiled
  std::vector<BufferProfile*> spare;
};

// Leaked, as the streams are.
Recorder& TheRecorder() {
  static Recorder* const recorder = new Recorder();
  return *recorder;
}

// nil: another device's.
MetalDeviceStream* Ours(void* stream) {
  static const Class ours = [MetalDeviceStream class];
  id object = (id)stream;
  return [object isKindOfClass:ours] ? (MetalDeviceStream*)object : nil;
}

void* HookCompute(void* stream, const ProfiledPass& pass) {
  return (void*)[Ours(stream) computeEncoderFor:pass];
}

void* HookBlit(void* stream, const ProfiledPass& pass) {
  return (void*)[Ours(stream) blitEncoderFor:pass];
}

void HookBegin(metal_ops::RunningOp* op);
void HookEnd(const metal_ops::RunningOp& op);

metal_ops::ProfilerHooks& Hooks() {
  static auto* const hooks =
      new metal_ops::ProfilerHooks{{0}, HookCompute, HookBlit, HookBegin, HookEnd};
  return *hooks;
}

uint64_t ThreadNumber() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

// With the recorder's lock.
uint32_t Number(Recorder& recorder, std::string_view text) {
  if (text.empty()) return 0;
  // Not by the address alone: another text may lie there by now.
  const uint64_t mixed = reinterpret_cast<uintptr_t>(text.data()) * 0x9e3779b97f4a7c15u;
  Known& known = recorder.known[mixed >> 54];
  if (known.at == text.data() && known.text == text) return known.number;
  auto found = recorder.numbers.find(text);
  if (found == recorder.numbers.end()) {
    const uint32_t number = static_cast<uint32_t>(recorder.strings.size());
    found = recorder.numbers.emplace(recorder.strings.emplace_back(text), number).first;
  }
  known = {text.data(), found->first, found->second};
  return found->second;
}

// With the recorder's lock.
void Add(Recorder& recorder, const ProfileEvent& event) {
  const uint64_t most = std::max(recorder.most[0], recorder.most[1]);
  if (recorder.events.size() < most) return recorder.events.push_back(event);
  for (uint64_t& dropped : recorder.dropped) ++dropped;
}

// With the recorder's lock. False: it began when strings had other numbers.
bool Number(Recorder& recorder, const metal_ops::RunningOp& op) {
  if (op.began < recorder.first.host) return false;
  if (op.numbers[0] != 0) return true;
  size_t length = 0;
  const char* const node = op.node(op.context, &length);
  op.numbers[0] = Number(recorder, op.type);
  op.numbers[1] = Number(recorder, {node, length});
  return true;
}

// Takes no lock: who ends, or launches before, looks for the names.
void HookBegin(metal_ops::RunningOp* op) { op->began = Nanoseconds(); }

void HookEnd(const metal_ops::RunningOp& op) {
  ProfileEvent event = {};
  event.start = event.encoded = op.began;
  event.end = Nanoseconds();
  event.thread = ThreadNumber();
  event.kind = static_cast<uint32_t>(EventKind::kOp);
  Recorder& recorder = TheRecorder();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  if (!IsProfiled() || !Number(recorder, op)) return;
  event.name = event.op = op.numbers[0];
  event.node = op.numbers[1];
  Add(recorder, event);
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

BufferProfile* NewProfile(id<MTLDevice> device) {
  Recorder& recorder = TheRecorder();
  {
    const std::lock_guard<std::mutex> lock(recorder.mutex);
    for (size_t i = recorder.spare.size(); i-- > 0;) {
      BufferProfile* const spare = recorder.spare[i];
      if (spare->device != device) continue;
      recorder.spare.erase(recorder.spare.begin() + static_cast<ptrdiff_t>(i));
      return spare;
    }
  }
  auto* const made = new BufferProfile();
  made->device = device;
  made->compute.descriptor = [[MTLComputePassDescriptor computePassDescriptor] retain];
  made->blit.descriptor = [[MTLBlitPassDescriptor blitPassDescriptor] retain];
  made->compute.attachment =
      [[made->compute.descriptor sampleBufferAttachments] objectAtIndexedSubscript:0];
  made->blit.attachment =
      [[made->blit.descriptor sampleBufferAttachments] objectAtIndexedSubscript:0];
  return made;
}

// Where the next pass' times go; nil if the device has no room for them.
id<MTLCounterSampleBuffer> NextSamples(BufferProfile* profile, NSUInteger* first) {
  const size_t pass = profile->passes.size();
  *first = pass % kPasses * 2;
  if (pass / kPasses < profile->samples.size()) return profile->samples[pass / kPasses];
  auto* const wanted = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
  [wanted setCounterSet:TheRecorder().timestamps];
  [wanted setStorageMode:MTLStorageModeShared];
  [wanted setSampleCount:kSamples];
  id<MTLCounterSampleBuffer> made = [profile->device newCounterSampleBufferWithDescriptor:wanted
                                                                                    error:nullptr];
  if (made != nil) profile->samples.push_back(made);
  return made;
}

// Makes the pass the next one that takes times. False: it takes none, and counts as not seen.
template <typename Kind>
bool Attach(BufferProfile** profile, id<MTLCommandBuffer> buffer, const ProfiledPass& pass,
            Kind BufferProfile::* kind) {
  if (*profile == nullptr) *profile = NewProfile([buffer device]);
  NSUInteger first = 0;
  id<MTLCounterSampleBuffer> const samples = NextSamples(*profile, &first);
  Recorder& recorder = TheRecorder();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  if (!IsProfiled()) return false;  // it has ended since the caller asked
  if (samples == nil) {
    for (uint64_t& dropped : recorder.dropped) ++dropped;
    return false;
  }
  Kind& taken = (*profile)->*kind;
  if (taken.samples != samples) [taken.attachment setSampleBuffer:taken.samples = samples];
  [taken.attachment setStartOfEncoderSampleIndex:first];
  [taken.attachment setEndOfEncoderSampleIndex:first + 1];
  ProfileEvent& event = (*profile)->passes.emplace_back();
  event = {};
  event.encoded = Nanoseconds();
  event.bytes = pass.bytes;
  event.thread = ThreadNumber();
  event.kind = static_cast<uint32_t>(pass.kind);
  event.name = Number(recorder, pass.name);
  std::copy_n(pass.grid, 3, event.grid);
  std::copy_n(pass.group, 3, event.group);
  if (pass.op != nullptr && Number(recorder, *pass.op)) {
    event.op = pass.op->numbers[0];
    event.node = pass.op->numbers[1];
  }
  return true;
}

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
    recorder.first = ReadClocks(device);
    recorder.strings.assign(1, "");
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
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  profile.ended = Nanoseconds();
  const Clocks first = recorder.first, last = ReadClocks(recorder.device);
  // By the device's clock, which may run at a pace of its own.
  const double pace = last.gpu > first.gpu ? static_cast<double>(last.host - first.host) /
                                                 static_cast<double>(last.gpu - first.gpu)
                                           : 1.0;
  const auto to_host = [&](uint64_t gpu) {
    const double since = static_cast<double>(static_cast<int64_t>(gpu - first.gpu)) * pace;
    return first.host + static_cast<uint64_t>(static_cast<int64_t>(since));
  };
  const int64_t apart = static_cast<int64_t>(first.host - first.cpu);
  profile.began = recorder.began[index];
  profile.dropped = recorder.dropped[index];
  profile.strings.assign(recorder.strings.begin(), recorder.strings.end());
  for (const ProfileEvent& event : recorder.events) {
    if (event.encoded < profile.began) continue;
    profile.events.push_back(event);
    ProfileEvent& own = profile.events.back();
    if (event.kind == static_cast<uint32_t>(EventKind::kCommandBuffer)) {
      own.start += static_cast<uint64_t>(apart);
      own.end += static_cast<uint64_t>(apart);
    } else if (event.stream != 0) {
      own.start = to_host(event.start);
      own.end = to_host(event.end);
    }
  }
  recorder.most[index] = 0;
  if (Hooks().on.fetch_and(~bit) == bit) {
    recorder.events = {};
    recorder.numbers.clear();
    recorder.known = {};  // whose texts end with the strings
    recorder.strings.clear();
    for (BufferProfile* spare : recorder.spare) delete spare;
    recorder.spare.clear();
  }
  return profile;
}

id<MTLComputeCommandEncoder> ProfiledCompute(BufferProfile** profile, id<MTLCommandBuffer> buffer,
                                             const ProfiledPass& pass) {
  if (!Attach(profile, buffer, pass, &BufferProfile::compute))
    return [buffer computeCommandEncoder];
  return [buffer computeCommandEncoderWithDescriptor:(*profile)->compute.descriptor];
}

id<MTLBlitCommandEncoder> ProfiledBlit(BufferProfile** profile, id<MTLCommandBuffer> buffer,
                                       const ProfiledPass& pass) {
  if (!Attach(profile, buffer, pass, &BufferProfile::blit)) return [buffer blitCommandEncoder];
  return [buffer blitCommandEncoderWithDescriptor:(*profile)->blit.descriptor];
}

void DeleteProfile(BufferProfile* profile) { delete profile; }

void FinishProfile(BufferProfile* profile, id<MTLCommandBuffer> buffer, uint32_t stream,
                   uint64_t number) {
  const bool failed = [buffer status] == MTLCommandBufferStatusError;
  const size_t passes = profile->passes.size();
  for (size_t from = 0; from < passes && !failed; from += kPasses) {
    const size_t count = std::min(kPasses, static_cast<NSUInteger>(passes - from));
    NSData* const data = [profile->samples[from / kPasses]
        resolveCounterRange:NSMakeRange(0, static_cast<NSUInteger>(count) * 2)];
    const auto* const times = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
    for (size_t i = 0; i < count; ++i) {
      profile->passes[from + i].start = times[2 * i].timestamp;
      profile->passes[from + i].end = times[2 * i + 1].timestamp;
    }
  }
  ProfileEvent whole = {};
  whole.kind = static_cast<uint32_t>(EventKind::kCommandBuffer);
  whole.start = static_cast<uint64_t>([buffer GPUStartTime] * 1e9);
  whole.end = static_cast<uint64_t>([buffer GPUEndTime] * 1e9);
  whole.encoded = passes == 0 ? whole.start : profile->passes[0].encoded;
  whole.stream = stream;
  whole.buffer = static_cast<uint32_t>(number);
  Recorder& recorder = TheRecorder();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  if (IsProfiled()) {
    whole.name = Number(recorder, failed ? "command buffer, failed" : "command buffer");
    Add(recorder, whole);
    // What failed has no times of its own.
    for (ProfileEvent& pass : profile->passes) {
      if (failed) break;
      pass.stream = stream;
      pass.buffer = static_cast<uint32_t>(number);
      Add(recorder, pass);
    }
  }
  profile->passes.clear();
  recorder.spare.push_back(profile);
}

BufferProfile* EmptyProfile(id<MTLCommandBuffer> buffer) { return NewProfile([buffer device]); }

HostScope::~HostScope() {
  if (began_ == 0 || !IsProfiled()) return;
  ProfileEvent event = {};
  event.start = event.encoded = began_;
  event.end = Nanoseconds();
  event.bytes = bytes_;
  event.thread = ThreadNumber();
  event.kind = kind_;
  Recorder& recorder = TheRecorder();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  if (!IsProfiled()) return;
  event.name = Number(recorder, name_);
  Add(recorder, event);
}

}  // namespace metal_device

// ---- what kernels and metal_ops.profiler ask ----------------------------------------------------

using metal_device::Profile;

METAL_DEVICE_EXPORT const void* metal_device_profiler() { return &metal_device::Hooks(); }

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

METAL_DEVICE_EXPORT uint64_t metal_device_profile_strings(const Profile* profile) {
  return profile->strings.size();
}

METAL_DEVICE_EXPORT const char* metal_device_profile_string(const Profile* profile, uint64_t i) {
  return profile->strings[i].c_str();
}

// When it began and ended, on CLOCK_MONOTONIC, and how many events were beyond the limit.
METAL_DEVICE_EXPORT void metal_device_profile_span(const Profile* profile, uint64_t* span) {
  span[0] = profile->began;
  span[1] = profile->ended;
  span[2] = profile->dropped;
}

METAL_DEVICE_EXPORT void metal_device_profile_delete(Profile* profile) { delete profile; }
