// Command queues on a GPU: kernels, copies and fills in a stream of the library.
#include <string.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "hostmetal/src/cuda/driver.h"

namespace hostmetal {
namespace cuda {
namespace {

constexpr unsigned kNonBlocking = 1;            // CU_STREAM_NON_BLOCKING
constexpr unsigned kPortable = 1, kMapped = 2;  // CU_MEMHOSTALLOC_*
constexpr size_t kStagingBytes = size_t{4} << 20;
constexpr uint32_t kByValueBytes = 256;  // as in hostmetal/msl/lib/gpu_runtime.h
// Grids have this many blocks along y and z at most, 2^31 - 1 along x.
constexpr uint32_t kMostBlocks[3] = {0x7fffffff, 65535, 65535};

// _msl::Grid of gpu_runtime.h.
struct Grid {
  uint32_t threads[3], threadgroups[3], first[3];
};

Address ToAddress(const void* p) { return reinterpret_cast<Address>(p); }

// Shared by a stream and the points in it, which may outlive it.
class Events {
 public:
  explicit Events(const Gpu& gpu) : gpu_(gpu) {}
  ~Events() {
    gpu_.Enter();
    for (Event event : free_) gpu_.library->EventDestroy(event);
    if (last_) gpu_.library->EventDestroy(last_);
  }
  Result Take(Event* event) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        *event = free_.back();
        free_.pop_back();
        return kSuccess;
      }
    }
    return gpu_.library->EventCreate(event, 0);
  }
  void Give(Event event) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(event);
  }

  // When this event happened, in nanoseconds of the host's clock. A waiting thread hears of it late, so it lies
  // behind the last one asked for by the difference on the GPU's clock; as that clock runs at a rate of its own,
  // not before `earliest` nor after now. Keeps the event for the next one and puts the last one, or nullptr, in its
  // place.
  Result Time(Event* event, uint64_t earliest, uint64_t* at) {
    std::lock_guard<std::mutex> lock(timed_mutex_);
    uint64_t found = earliest;
    float milliseconds = 0;
    if (last_) {
      const Result result = gpu_.library->EventElapsedTime(&milliseconds, last_, *event);
      if (result != kSuccess) return result;
      found = last_at_ + uint64_t(int64_t(double(milliseconds) * 1e6));
      if (int64_t(found - earliest) < 0) found = earliest;
    }
    *at = std::min(found, Now());
    if (milliseconds >= 0) {  // else the points are not asked in their order
      std::swap(last_, *event);
      last_at_ = *at;
    }
    return kSuccess;
  }

  const Gpu& gpu_;
  std::atomic<int> ahead{0};  // points not known to have passed

 private:
  std::mutex mutex_, timed_mutex_;
  std::vector<Event> free_;
  Event last_ = nullptr;  // happened at last_at_
  uint64_t last_at_ = 0;
};

// An event whose time is wanted, and where.
struct Sampled {
  Event event;
  std::atomic<uint64_t>*slot, *also;  // the second may be nullptr
};

class GpuPoint : public Point {
 public:
  // `begin`, asked for at `asked`, may be nullptr: nothing was given since the point before.
  GpuPoint(std::shared_ptr<Events> events, Event begin, uint64_t asked, Event end,
           std::vector<Sampled> samples, std::string what, Result result)
      : events_(std::move(events)),
        begin_(begin),
        asked_(asked),
        samples_(std::move(samples)),
        what_(std::move(what)),
        end_(end),
        ahead_(end) {
    ++events_->ahead;
    if (result != kSuccess) Passed(result);
  }
  ~GpuPoint() override {
    if (!passed_) --events_->ahead;
    if (begin_) events_->Give(begin_);
    if (end_) events_->Give(end_);
    for (const Sampled& sample : samples_) events_->Give(sample.event);
  }

  Failure Wait() override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!passed_) {
      const Library& cu = *events_->gpu_.library;
      events_->gpu_.Enter();
      Result result = end_ ? cu.EventSynchronize(end_) : kSuccess;
      float milliseconds = 0;
      if (result == kSuccess && begin_) result = cu.EventElapsedTime(&milliseconds, begin_, end_);
      busy_ = Nanoseconds(milliseconds);
      passed_at_ = Now();
      if (result == kSuccess && begin_) result = events_->Time(&end_, asked_ + busy_, &passed_at_);
      for (size_t i = 0; i < samples_.size() && result == kSuccess; ++i) {
        result = cu.EventElapsedTime(&milliseconds, begin_, samples_[i].event);
        if (result != kSuccess) break;
        const uint64_t at = passed_at_ - busy_ + std::min(busy_, Nanoseconds(milliseconds));
        samples_[i].slot->store(at, std::memory_order_relaxed);
        if (samples_[i].also) samples_[i].also->store(at, std::memory_order_relaxed);
      }
      Passed(result);
    }
    return failure_;
  }
  uint64_t BusyNanoseconds() const override { return busy_; }
  uint64_t EndNanoseconds() const override { return passed_at_; }
  Event end() const { return ahead_.load(); }  // nullptr: it is known to have passed

 private:
  static uint64_t Nanoseconds(float milliseconds) { return uint64_t(double(milliseconds) * 1e6); }

  void Passed(Result result) {
    passed_ = true;
    ahead_ = nullptr;
    --events_->ahead;
    if (result != kSuccess) failure_ = Explained(*events_->gpu_.library, what_, result);
  }

  const std::shared_ptr<Events> events_;
  const Event begin_;
  const uint64_t asked_;
  const std::vector<Sampled> samples_;
  const std::string what_;  // its kernels, for messages
  std::mutex mutex_;        // guards the members below
  Event end_;
  std::atomic<Event> ahead_;
  bool passed_ = false;
  Failure failure_;
  uint64_t busy_ = 0, passed_at_ = 0;
};

class GpuStream : public hostmetal::Stream {
 public:
  explicit GpuStream(const Gpu& gpu)
      : gpu_(gpu), cu_(*gpu.library), events_(std::make_shared<Events>(gpu)) {
    gpu.Enter();
    broken_ = cu_.StreamCreate(&stream_, kNonBlocking);
    if (broken_ == kSuccess) {
      broken_ =
          cu_.MemHostAlloc(reinterpret_cast<void**>(&host_), kStagingBytes, kPortable | kMapped);
    }
    if (broken_ == kSuccess) broken_ = cu_.MemAlloc(&device_, kStagingBytes);
  }
  ~GpuStream() override {
    gpu_.Enter();
    if (stream_) cu_.StreamSynchronize(stream_);
    if (begin_) events_->Give(begin_);
    for (const Sampled& sample : samples_) events_->Give(sample.event);
    if (host_) cu_.MemFreeHost(host_);
    if (device_) cu_.MemFree(device_);
    if (stream_) cu_.StreamDestroy(stream_);
  }

  Failure Dispatch(const DispatchCommand* commands, size_t count) override {
    if (Failure failure = Begin("a kernel")) return failure;
    for (size_t i = 0; i < count; ++i) {
      if (Failure failure = Launch(commands[i])) return failure;
    }
    return {};
  }

  Failure Copy(void* destination, const void* source, size_t bytes) override {
    if (!bytes) return {};
    if (Failure failure = Begin("a copy")) return failure;
    const Address to = ToAddress(destination), from = ToAddress(source);
    const bool up = to > from;
    const size_t apart = up ? to - from : from - to;
    if (apart >= bytes) return Check("[copy]", cu_.MemcpyAsync(to, from, bytes, stream_));
    // The library's copies may not overlap: parts, from the end that nothing else is copied to.
    const size_t most = std::max(apart, kStagingBytes);
    for (size_t done = 0; apart && done < bytes;) {
      const size_t part = std::min(most, bytes - done), at = up ? bytes - done - part : done;
      if (Failure failure = CopyPart(to + at, from + at, part, part > apart)) return failure;
      done += part;
    }
    return {};
  }

  Failure Fill(void* destination, uint8_t value, size_t bytes) override {
    if (!bytes) return {};
    if (Failure failure = Begin("a fill")) return failure;
    return Check("[fill]", cu_.MemsetD8Async(ToAddress(destination), value, bytes, stream_));
  }

  Failure Read(void* host, const void* source, size_t bytes) override {
    if (Failure failure = Copy(host, source, bytes)) return failure;
    return Check("[read]", cu_.StreamSynchronize(stream_));
  }

  Failure Sample(std::atomic<uint64_t>* slot, std::atomic<uint64_t>* also) override {
    if (Failure failure = Begin("a sample")) return failure;
    Event event = nullptr;
    if (Failure failure = Check("[sample]", events_->Take(&event))) return failure;
    samples_.push_back({event, slot, also});
    return Check("[sample]", cu_.EventRecord(event, stream_));
  }

  Failure Finish() override { return Mark()->Wait(); }

  std::shared_ptr<Point> Mark() override {
    gpu_.Enter();
    Event begin = begin_, end = nullptr;
    std::string what = "[" + names_ + "]";
    begin_ = nullptr;
    names_.clear();
    Result result = broken_ == kSuccess ? events_->Take(&end) : kSuccess;
    if (result == kSuccess && end) result = cu_.EventRecord(end, stream_);
    // Without work of its own nothing of it can fail.
    if (result != kSuccess && !begin) {
      if (end) events_->Give(end);
      end = nullptr;
      result = kSuccess;
    }
    return std::make_shared<GpuPoint>(events_, begin, asked_, end, std::exchange(samples_, {}),
                                      std::move(what), result);
  }

  bool StartAfter(const Point& point) override {
    const auto* other = dynamic_cast<const GpuPoint*>(&point);
    if (!other || broken_ != kSuccess) return false;
    gpu_.Enter();
    return !other->end() || cu_.StreamWaitEvent(stream_, other->end(), 0) == kSuccess;
  }

 private:
  Failure Check(const std::string& what, Result result) {
    return result == kSuccess ? Failure{} : Explained(cu_, what, result);
  }

  Failure Begin(const char* what) {
    gpu_.Enter();
    if (broken_ != kSuccess) return Explained(cu_, "[commandQueue] no stream", broken_);
    if (begin_) return {};
    if (!events_->ahead) staged_ = 0;
    if (Failure failure = Check("[commandBuffer]", events_->Take(&begin_))) return failure;
    names_ = what;
    asked_ = Now();
    return Check("[commandBuffer]", cu_.EventRecord(begin_, stream_));
  }

  // Where they overlap by way of the staging memory, which is free between two launches of a stream.
  Failure CopyPart(Address to, Address from, size_t bytes, bool overlap) {
    if (overlap) {
      if (Failure failure = Check("[copy]", cu_.MemcpyAsync(device_, from, bytes, stream_))) {
        return failure;
      }
      from = device_;
    }
    return Check("[copy]", cu_.MemcpyAsync(to, from, bytes, stream_));
  }

  // Where so many bytes may lie until the stream has come so far, behind host_ and device_.
  Failure Reserve(size_t length, size_t* begin) {
    *begin = (staged_ + 255) / 256 * 256;
    if (*begin + length > kStagingBytes) {
      if (Failure failure = Check("[setBytes]", cu_.StreamSynchronize(stream_))) return failure;
      *begin = 0;
    }
    staged_ = *begin + length;
    return {};
  }

  // Bytes of the host as memory of the GPU.
  Failure Stage(const void* bytes, size_t length, Address* at) {
    size_t begin = 0;
    if (Failure failure = Reserve(length, &begin)) return failure;
    memcpy(host_ + begin, bytes, length);
    *at = device_ + begin;
    return Check("[setBytes]", cu_.MemcpyAsync(*at, ToAddress(host_ + begin), length, stream_));
  }

  // A copy, with zeros behind, of a buffer that is shorter than the kernel's reference.
  Failure Lengthen(const metallib_argument& a, const metallib_buffer& bound, Address* at) {
    const std::string what = std::string("[buffer(") + std::to_string(a.index) + ")]";
    if (a.pointee_size > kStagingBytes) {
      return {kInvalidResource, what + " '" + a.name + "' has " + std::to_string(bound.length) +
                                    " bytes; " + a.type_name + " takes " +
                                    std::to_string(a.pointee_size)};
    }
    size_t begin = 0;
    if (Failure failure = Reserve(a.pointee_size, &begin)) return failure;
    *at = device_ + begin;
    Result result = cu_.MemsetD8Async(*at, 0, a.pointee_size, stream_);
    if (result == kSuccess && bound.length) {
      result = cu_.MemcpyAsync(*at, ToAddress(bound.address), bound.length, stream_);
    }
    if (a.flags & METALLIB_ARG_WRITTEN) copied_.push_back({*at, bound});
    return Check(what, result);
  }

  Failure Launch(const DispatchCommand& c) {
    copied_.clear();
    const metallib_kernel& entry = *c.kernel->entry;
    if (names_.size() < 200 && names_.find(entry.name) == names_.npos) {
      names_ = names_[0] == 'a' && names_[1] == ' ' ? entry.name : names_ + ", " + entry.name;
    }
    // Parameters as gpu.py declares them: the grid, then the arguments in order.
    Grid grid;
    std::copy_n(c.threads, 3, grid.threads);
    std::copy_n(c.threadgroups, 3, grid.threadgroups);
    parameters_.assign(1, &grid);
    offsets_.clear();
    values_.clear();
    uint32_t offset_of[METALLIB_MAX_BUFFERS], shared = 0;
    for (uint32_t i = 0; i < METALLIB_MAX_BUFFERS; ++i) {
      offset_of[i] = shared;
      shared += (c.threadgroup_lengths[i] + 15) & ~15u;
    }
    for (uint32_t i = 0; i < entry.n_arguments; ++i) {
      const metallib_argument& a = entry.arguments[i];
      size_t at = (values_.size() + 15) / 16 * 16;
      offsets_.push_back(at);
      if (a.kind == METALLIB_THREADGROUP) {
        values_.resize(at + 4);
        memcpy(&values_[at], &offset_of[a.index], 4);
        continue;
      }
      uint32_t slot = a.kind == METALLIB_TEXTURE   ? METALLIB_FIRST_TEXTURE + a.index
                      : a.kind == METALLIB_SAMPLER ? METALLIB_FIRST_SAMPLER + a.index
                                                   : a.index;
      const metallib_buffer& binding = c.buffers[slot];
      bool on_host =
          a.kind == METALLIB_TEXTURE || a.kind == METALLIB_SAMPLER || (c.host_bytes >> a.index & 1);
      bool by_value = a.kind == METALLIB_CONSTANT && (a.flags & METALLIB_ARG_REFERENCE) &&
                      !(a.flags & METALLIB_ARG_OPTIONAL) && a.pointee_size <= kByValueBytes;
      size_t alignment = std::max<size_t>(8, a.pointee_alignment);
      values_.resize(at + (by_value ? alignment + a.pointee_size + 16 : 8));
      Address address = ToAddress(binding.address);
      if (address && on_host && by_value) {
        address = 0;
        memcpy(&values_[at + alignment], binding.address, a.pointee_size);
      } else if (address && on_host) {
        if (Failure failure = Stage(binding.address, binding.length, &address)) return failure;
      } else if (address && c.shorter >> a.index & 1) {
        if (Failure failure = Lengthen(a, binding, &address)) return failure;
      }
      memcpy(&values_[at], &address, 8);
    }
    for (size_t at : offsets_) parameters_.push_back(&values_[at]);
    metallib_log* log = LogOf(*c.kernel);
    if (entry.flags & METALLIB_KERNEL_LOGS) parameters_.push_back(&log);
    const auto* code = static_cast<const Compiled*>(c.kernel->code.get());
    if (shared > code->shared.load(std::memory_order_relaxed)) {
      Result result = cu_.FuncSetAttribute(code->function, kMaxDynamicSharedBytes, int(shared));
      if (result != kSuccess) return Check(std::string("[") + entry.name + "]", result);
      code->shared.store(shared, std::memory_order_relaxed);
    }
    // More blocks than a launch may have: several launches.
    for (uint64_t z = 0; z < c.threadgroups[2]; z += kMostBlocks[2]) {
      for (uint64_t y = 0; y < c.threadgroups[1]; y += kMostBlocks[1]) {
        for (uint64_t x = 0; x < c.threadgroups[0]; x += kMostBlocks[0]) {
          const uint64_t first[3] = {x, y, z};
          uint32_t blocks[3];
          for (int i = 0; i < 3; ++i) {
            grid.first[i] = uint32_t(first[i]);
            blocks[i] = std::min<uint32_t>(kMostBlocks[i], c.threadgroups[i] - grid.first[i]);
          }
          Result result =
              cu_.LaunchKernel(code->function, blocks[0], blocks[1], blocks[2],
                               c.threadgroup_size[0], c.threadgroup_size[1], c.threadgroup_size[2],
                               shared, stream_, parameters_.data(), nullptr);
          if (result != kSuccess) return Check(std::string("[") + entry.name + "]", result);
        }
      }
    }
    for (const auto& [from, to] : copied_) {
      Result result =
          to.length ? cu_.MemcpyAsync(ToAddress(to.address), from, to.length, stream_) : kSuccess;
      if (result != kSuccess) return Check(std::string("[") + entry.name + "]", result);
    }
    return {};
  }

  const Gpu& gpu_;
  const Library& cu_;
  Result broken_ = kSuccess;
  const std::shared_ptr<Events> events_;
  cuda::Stream stream_ = nullptr;
  Event begin_ = nullptr;         // before the first work since the last point, if there was any
  uint64_t asked_ = 0;            // when that was given
  std::vector<Sampled> samples_;  // since the last point
  char* host_ = nullptr;
  Address device_ = 0;
  size_t staged_ = 0;
  std::string names_;  // of the running kernels, for messages
  std::vector<void*> parameters_;
  std::vector<size_t> offsets_;
  std::vector<char> values_;
  std::vector<std::pair<Address, metallib_buffer>> copied_;  // of a launch, to be copied back
};

}  // namespace

std::unique_ptr<hostmetal::Stream> NewStream(const Gpu& gpu) {
  return std::make_unique<GpuStream>(gpu);
}

}  // namespace cuda
}  // namespace hostmetal
