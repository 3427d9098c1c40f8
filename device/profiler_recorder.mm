// Pages of events and numbers of names: see profiler_recorder.h.

#include "device/profiler_recorder.h"

#include <algorithm>
#include <utility>

namespace metal_device {

Recorder& TheRecorder() {
  static Recorder* const recorder = new Recorder();
  return *recorder;
}

void Keep(Recorder& recorder, Page* page) {
  if (page->empty()) return;
  if (recorder.stored >= std::max(recorder.most[0], recorder.most[1])) {
    for (uint64_t& dropped : recorder.dropped) dropped += page->size();
    return page->clear();
  }
  recorder.stored += page->size();
  recorder.pages.push_back(std::move(*page));
  *page = {};
}

void Drop(uint64_t count) {
  Recorder& recorder = TheRecorder();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  for (uint64_t& dropped : recorder.dropped) dropped += count;
}

uint32_t NumberOf(std::string_view text, const metal_ops::NumberedName* kept) {
  if (text.empty()) return 0;
  Recorder& recorder = TheRecorder();
  // Before the number: one that is newer than it says is looked up again.
  const uint64_t generation = recorder.generation.load(std::memory_order_acquire) << 32;
  if (kept != nullptr) {
    const uint64_t number = kept->number.load(std::memory_order_relaxed);
    if ((number ^ generation) >> 32 == 0) return static_cast<uint32_t>(number);
  }
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  auto found = recorder.numbers.find(text);
  if (found == recorder.numbers.end()) {
    const auto number = static_cast<uint32_t>(recorder.strings.size());
    found = recorder.numbers.emplace(recorder.strings.emplace_back(text), number).first;
  }
  if (kept != nullptr) kept->number.store(generation | found->second, std::memory_order_relaxed);
  return found->second;
}

bool NumberOf(const metal_ops::RunningOp& op) {
  Recorder& recorder = TheRecorder();
  if (op.began < recorder.first_host.load(std::memory_order_relaxed)) return false;
  if (op.numbers[0] != 0) return true;
  // With both, the node's text is not needed, for which TensorFlow has to be asked.
  if (op.names != nullptr) {
    const uint64_t generation = recorder.generation.load(std::memory_order_acquire) << 32;
    const uint64_t type = op.names->type.number.load(std::memory_order_relaxed);
    const uint64_t node = op.names->node.number.load(std::memory_order_relaxed);
    if ((type ^ generation) >> 32 == 0 && (node ^ generation) >> 32 == 0) {
      op.numbers[0] = static_cast<uint32_t>(type);
      op.numbers[1] = static_cast<uint32_t>(node);
      return true;
    }
  }
  size_t length = 0;
  const char* const node = op.node(op.context, &length);
  op.numbers[0] = NumberOf(op.type, op.names == nullptr ? nullptr : &op.names->type);
  op.numbers[1] = NumberOf({node, length}, op.names == nullptr ? nullptr : &op.names->node);
  return true;
}

// A thread's lane ends with it, but its events stay.
struct Lane::Owner {
  Lane* const lane = new Lane();
  Owner() {
    Recorder& recorder = TheRecorder();
    const std::lock_guard<std::mutex> lock(recorder.mutex);
    recorder.lanes.push_back(lane);
  }
  ~Owner() {
    Recorder& recorder = TheRecorder();
    const std::lock_guard<std::mutex> lock(recorder.mutex);
    if (IsProfiled()) lane->Collect(recorder);
    recorder.lanes.erase(std::find(recorder.lanes.begin(), recorder.lanes.end(), lane));
    delete lane;
  }
};

Lane& Lane::Mine() {
  thread_local const Owner owner;
  return *owner.lane;
}

Lane::Lane()
    : thread_([] {
        static std::atomic<uint64_t> threads{0};
        return ++threads;
      }()),
      page_(kPage) {}

ProfileEvent& Lane::Next() {
  ProfileEvent& event = page_[done_.load(std::memory_order_relaxed)];
  event = {};
  event.thread = thread_;
  return event;
}

void Lane::Done() {
  const size_t done = done_.load(std::memory_order_relaxed) + 1;
  done_.store(done, std::memory_order_release);
  if (done < kPage) return;
  Recorder& recorder = TheRecorder();
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  Collect(recorder);
  done_.store(collected_ = 0, std::memory_order_relaxed);
}

void Lane::Collect(Recorder& recorder) {
  const size_t done = done_.load(std::memory_order_acquire);
  Page page(page_.begin() + static_cast<ptrdiff_t>(collected_),
            page_.begin() + static_cast<ptrdiff_t>(done));
  collected_ = done;
  Keep(recorder, &page);
}

}  // namespace metal_device
