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

uint32_t Lane::NumberOf(std::string_view text) {
  if (text.empty()) return 0;
  Recorder& recorder = TheRecorder();
  const uint64_t generation = recorder.generation.load(std::memory_order_acquire);
  if (generation_ != generation) {
    for (Known& known : known_) known.at = nullptr;
    generation_ = generation;
  }
  const uint64_t mixed = reinterpret_cast<uintptr_t>(text.data()) * 0x9e3779b97f4a7c15u;
  Known* const set = &known_[(mixed >> 54) & ~(kWays - 1)];
  for (size_t way = 0; way < kWays; ++way) {
    if (set[way].at == text.data() && set[way].text == text) return set[way].number;
  }
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  auto found = recorder.numbers.find(text);
  if (found == recorder.numbers.end()) {
    const auto number = static_cast<uint32_t>(recorder.strings.size());
    found = recorder.numbers.emplace(recorder.strings.emplace_back(text), number).first;
  }
  std::move_backward(set, set + kWays - 1, set + kWays);  // the oldest goes
  set[0] = {text.data(), std::string(text), found->second};
  return found->second;
}

bool Lane::NumberOf(const metal_ops::RunningOp& op) {
  if (op.began < TheRecorder().first_host.load(std::memory_order_relaxed)) return false;
  if (op.numbers[0] != 0) return true;
  size_t length = 0;
  const char* const node = op.node(op.context, &length);
  op.numbers[0] = NumberOf(op.type);
  op.numbers[1] = NumberOf({node, length});
  return true;
}

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
