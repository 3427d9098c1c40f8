// Shared by the parts of the profiler: events, the names in them, and the sessions that profile. See
// profiler.h.
//
// A profiled launch may cost a tenth of a microsecond or two, so nothing of it takes a lock: events
// lie in pages, each of one thread or of one stream, and names have their numbers with them.

#ifndef METAL_OPS_DEVICE_PROFILER_RECORDER_H_
#define METAL_OPS_DEVICE_PROFILER_RECORDER_H_

#import <Metal/Metal.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/profiler.h"

namespace metal_device {

using Page = std::vector<ProfileEvent>;

// Events of a page; passes, too, have their times resolved so many at once.
constexpr size_t kPage = 512;
constexpr int kProfilers = 2;

// The host's clock and the device's, at one time.
struct Clocks {
  uint64_t host, cpu, gpu;
};

class Lane;

struct Recorder {
  // Counts up when the numbers of strings change, which happens while no profiler runs.
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> first_host{0};  // when that was

  std::mutex mutex;  // guards the members below
  std::vector<Page> pages;
  uint64_t stored = 0;  // events in them
  std::vector<Lane*> lanes;
  std::deque<std::string> strings;  // which stay where they are
  std::unordered_map<std::string_view, uint32_t> numbers;
  uint64_t began[kProfilers] = {}, most[kProfilers] = {}, dropped[kProfilers] = {};
  id<MTLDevice> device = nil;
  id<MTLCounterSet> timestamps = nil;
  Clocks first;  // when no profiler had run
};

// Leaked, as the streams are.
Recorder& TheRecorder();

// With the recorder's lock. Keeps the events, or counts them where there are enough; leaves an empty
// page.
void Keep(Recorder& recorder, Page* page);
// So many events will be missing.
void Drop(uint64_t count);

// 0 for an empty text. Takes the recorder's lock, unless the number is kept and still holds.
uint32_t NumberOf(std::string_view text, const metal_ops::NumberedName* kept = nullptr);
// Fills in the op's numbers. False: it began when strings had other ones.
bool NumberOf(const metal_ops::RunningOp& op);

// The events of one thread.
class Lane {
 public:
  static Lane& Mine();

  // For the thread alone: its next event, to be filled in up to the call of Done().
  ProfileEvent& Next();
  void Done();
  uint64_t thread() const { return thread_; }

  // With the recorder's lock: it gets the events that are done, else they are lost.
  void Collect(Recorder& recorder);
  void Clear() { collected_ = done_.load(std::memory_order_acquire); }

 private:
  struct Owner;
  Lane();

  const uint64_t thread_;
  // Its size stays, so that others read completed entries while the thread goes on.
  Page page_;
  std::atomic<size_t> done_{0};
  size_t collected_ = 0;  // with the recorder's lock
};

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_PROFILER_RECORDER_H_
