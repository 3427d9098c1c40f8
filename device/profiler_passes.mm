// Passes and their times: see profiler.h.
//
// Some devices take times between the launches of a pass. Apple's GPUs do so at its start and its end,
// and there a launch has a pass of its own while a profiler runs. A stream's passes lie in pages with a
// sample buffer each; a page that is full is resolved when its last command buffer is done.

#import <Foundation/Foundation.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/profiler_recorder.h"

namespace metal_device {
namespace {

// Passes of a stream, with a place for the times of each.
struct Passes {
  explicit Passes(id<MTLDevice> device) {
    auto* const wanted = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
    [wanted setCounterSet:TheRecorder().timestamps];
    [wanted setStorageMode:MTLStorageModeShared];
    [wanted setSampleCount:2 * kPage];
    samples = [device newCounterSampleBufferWithDescriptor:wanted error:nullptr];
    events.reserve(kPage);
  }
  ~Passes() { [samples release]; }
  Passes(const Passes&) = delete;
  Passes& operator=(const Passes&) = delete;

  id<MTLCounterSampleBuffer> samples;  // nil: the device has no room for it
  Page events;
  uint64_t last = 0;  // the number of the last pass' command buffer
  const uint64_t generation = TheRecorder().generation.load();
};

// A pass, and its attachment for the samples of its times.
template <typename Descriptor, typename Attachment>
struct Wanted {
  explicit Wanted(Descriptor* made)
      : descriptor([made retain]),
        attachment([[made sampleBufferAttachments] objectAtIndexedSubscript:0]) {}
  ~Wanted() { [descriptor release]; }
  Wanted(const Wanted&) = delete;
  Wanted& operator=(const Wanted&) = delete;

  Descriptor* const descriptor;
  Attachment* const attachment;              // the descriptor's
  id<MTLCounterSampleBuffer> samples = nil;  // the attachment's
};

}  // namespace

class StreamProfile {
 public:
  // On the stream's queue.
  std::unique_ptr<Passes> passes;
  uint64_t number = 0, encoded = 0;  // of the command buffer that has the last pass: its first one
  Wanted<MTLComputePassDescriptor, MTLComputePassSampleBufferAttachmentDescriptor> compute{
      [MTLComputePassDescriptor computePassDescriptor]};
  Wanted<MTLBlitPassDescriptor, MTLBlitPassSampleBufferAttachmentDescriptor> blit{
      [MTLBlitPassDescriptor blitPassDescriptor]};

  std::atomic<bool> has_full{false};
  std::mutex mutex;  // guards the members below
  std::deque<std::unique_ptr<Passes>> full;
  std::vector<uint64_t> failed;  // command buffers
};

namespace {

// Their times, and to the recorder. Passes that failed, or are not done, are left out.
void Resolve(Passes* passes, uint32_t stream, uint64_t completed,
             const std::vector<uint64_t>& failed) {
  Page& events = passes->events;
  NSData* const data =
      events.empty() ? nil
                     : [passes->samples resolveCounterRange:NSMakeRange(0, 2 * events.size())];
  const auto* times = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
  if (times == nullptr) return;
  for (ProfileEvent& event : events) {
    event.start = times++->timestamp;
    event.end = times++->timestamp;
    event.stream = stream;
  }
  const auto unseen = [&](const ProfileEvent& event) {
    return event.buffer > completed ||
           std::find(failed.begin(), failed.end(), event.buffer) != failed.end();
  };
  events.erase(std::remove_if(events.begin(), events.end(), unseen), events.end());
  Recorder& recorder = TheRecorder();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  if (passes->generation == recorder.generation.load()) Keep(recorder, &events);
}

// Where the next pass' times go.
Passes* Place(StreamProfile* profile, id<MTLDevice> device) {
  std::unique_ptr<Passes>& passes = profile->passes;
  if (passes != nullptr && passes->generation != TheRecorder().generation.load()) passes.reset();
  if (passes != nullptr && passes->events.size() == kPage) {
    const std::lock_guard<std::mutex> lock(profile->mutex);
    profile->full.push_back(std::move(passes));
    profile->has_full.store(true);
  }
  if (passes == nullptr) passes = std::make_unique<Passes>(device);
  return passes.get();
}

// The next place for times, which is the pass'. nullptr: there is none, and it counts as not seen.
Passes* Record(StreamProfile** profile, id<MTLDevice> device, uint64_t number,
               const ProfiledPass& pass) {
  if (*profile == nullptr) *profile = new StreamProfile();
  Passes* const passes = Place(*profile, device);
  if (passes->samples == nil) {
    Drop(1);
    return nullptr;
  }
  ProfileEvent& event = passes->events.emplace_back();
  event.bytes = pass.bytes;
  event.thread = Lane::Mine().thread();
  event.kind = static_cast<uint32_t>(pass.kind);
  event.name = NumberOf(pass.name, pass.number);
  event.buffer = static_cast<uint32_t>(number);
  std::copy_n(pass.grid, 3, event.grid);
  std::copy_n(pass.group, 3, event.group);
  // The first of an op is asked for as the op is called.
  const bool is_first = pass.op != nullptr && pass.op->numbers[0] == 0;
  if (pass.op != nullptr && NumberOf(*pass.op)) {
    event.op = pass.op->numbers[0];
    event.node = pass.op->numbers[1];
    if (is_first) event.encoded = pass.op->began;
  }
  if (event.encoded == 0) event.encoded = Nanoseconds();
  passes->last = number;
  if ((*profile)->number != number) {
    (*profile)->number = number;
    (*profile)->encoded = event.encoded;
  }
  return passes;
}

// The first sample of the pass that was recorded last.
NSUInteger FirstSample(const Passes& passes) { return 2 * (passes.events.size() - 1); }

// Makes the pass the next one that takes times. False: it takes none.
template <typename Kind>
bool Attach(StreamProfile** profile, id<MTLCommandBuffer> buffer, uint64_t number,
            const ProfiledPass& pass, Kind StreamProfile::* kind) {
  const Passes* const passes = Record(profile, [buffer device], number, pass);
  if (passes == nullptr) return false;
  Kind& wanted = (*profile)->*kind;
  if (wanted.samples != passes->samples) {
    [wanted.attachment setSampleBuffer:wanted.samples = passes->samples];
  }
  [wanted.attachment setStartOfEncoderSampleIndex:FirstSample(*passes)];
  [wanted.attachment setEndOfEncoderSampleIndex:FirstSample(*passes) + 1];
  return true;
}

}  // namespace

void DeleteProfile(StreamProfile* profile) { delete profile; }

id<MTLComputeCommandEncoder> ProfiledCompute(StreamProfile** profile, id<MTLCommandBuffer> buffer,
                                             uint64_t number, const ProfiledPass& pass) {
  if (!Attach(profile, buffer, number, pass, &StreamProfile::compute)) {
    return [buffer computeCommandEncoder];
  }
  return [buffer computeCommandEncoderWithDescriptor:(*profile)->compute.descriptor];
}

StreamProfile* SampleBefore(StreamProfile** profile, id<MTLDevice> device, uint64_t number,
                            id<MTLComputeCommandEncoder> encoder, const ProfiledPass& pass) {
  const Passes* const passes = Record(profile, device, number, pass);
  if (passes == nullptr) return nullptr;
  [encoder sampleCountersInBuffer:passes->samples
                    atSampleIndex:FirstSample(*passes)
                      withBarrier:YES];
  return *profile;
}

void SampleAfter(StreamProfile* profile, id<MTLComputeCommandEncoder> encoder) {
  const Passes& passes = *profile->passes;
  [encoder sampleCountersInBuffer:passes.samples
                    atSampleIndex:FirstSample(passes) + 1
                      withBarrier:YES];
}

id<MTLBlitCommandEncoder> ProfiledBlit(StreamProfile** profile, id<MTLCommandBuffer> buffer,
                                       uint64_t number, const ProfiledPass& pass) {
  if (!Attach(profile, buffer, number, pass, &StreamProfile::blit)) {
    return [buffer blitCommandEncoder];
  }
  return [buffer blitCommandEncoderWithDescriptor:(*profile)->blit.descriptor];
}

uint64_t BeginBuffer(StreamProfile** profile, uint64_t number) {
  if (*profile == nullptr) *profile = new StreamProfile();
  return (*profile)->number == number ? (*profile)->encoded : Nanoseconds();
}

void FinishBuffer(StreamProfile* profile, id<MTLCommandBuffer> buffer, uint32_t stream,
                  uint64_t number, uint64_t encoded) {
  const bool has_failed = [buffer status] == MTLCommandBufferStatusError;
  if (has_failed || profile->has_full.load(std::memory_order_relaxed)) {
    const std::lock_guard<std::mutex> lock(profile->mutex);
    if (has_failed) profile->failed.push_back(number);
    while (!profile->full.empty() && profile->full.front()->last <= number) {
      Resolve(profile->full.front().get(), stream, number, profile->failed);
      profile->full.pop_front();
    }
    profile->has_full.store(!profile->full.empty());
  }
  Lane& lane = Lane::Mine();
  ProfileEvent& whole = lane.Next();
  whole.thread = 0;
  whole.kind = static_cast<uint32_t>(EventKind::kCommandBuffer);
  whole.start = static_cast<uint64_t>([buffer GPUStartTime] * 1e9);
  whole.end = static_cast<uint64_t>([buffer GPUEndTime] * 1e9);
  whole.encoded = encoded;
  whole.stream = stream;
  whole.buffer = static_cast<uint32_t>(number);
  static const metal_ops::NumberedName done, failed;
  whole.name =
      has_failed ? NumberOf("command buffer, failed", &failed) : NumberOf("command buffer", &done);
  lane.Done();
}

void CollectPasses(StreamProfile* profile, uint32_t stream, uint64_t completed) {
  if (profile == nullptr) return;
  const std::lock_guard<std::mutex> lock(profile->mutex);
  if (profile->passes != nullptr) profile->full.push_back(std::move(profile->passes));
  for (const auto& passes : profile->full) {
    Resolve(passes.get(), stream, completed, profile->failed);
  }
  profile->full.clear();
  profile->has_full.store(false);
  profile->failed.clear();
}

}  // namespace metal_device
