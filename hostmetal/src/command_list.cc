// The commands that encoders record and queues execute.
#include "hostmetal/src/command_list.h"

#include <algorithm>
#include <chrono>

#include "hostmetal/src/sync.h"

namespace hostmetal {

uint64_t EventState::value() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return value_;
}

std::vector<std::function<void()>> EventState::Set(uint64_t value) {
  value_ = value;
  promises_.erase(std::remove_if(promises_.begin(), promises_.end(),
                                 [&](const Promised& p) { return p.value <= value; }),
                  promises_.end());
  std::vector<std::function<void()>> due;
  std::vector<std::pair<uint64_t, std::function<void()>>> later;
  for (auto& n : notifications_) {
    if (n.first > value) {
      later.push_back(std::move(n));
    } else {
      due.push_back(std::move(n.second));
    }
  }
  notifications_.swap(later);
  changed_.notify_all();
  return due;
}

void EventState::Signal(uint64_t value) {
  std::vector<std::function<void()>> due;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    due = Set(value);
  }
  for (auto& notify : due) notify();
}

void EventState::Keep(uint64_t promise, uint64_t value) {
  std::vector<std::function<void()>> due;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (promise > kept_) {
      kept_ = promise;
      due = Set(value);
    }
    promises_.erase(std::remove_if(promises_.begin(), promises_.end(),
                                   [&](const Promised& p) { return p.id == promise; }),
                    promises_.end());
  }
  for (auto& notify : due) notify();
}

bool EventState::Wait(uint64_t value, uint64_t deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto reached = [&] { return value_ >= value; };
  if (deadline == kForever) {
    changed_.wait(lock, reached);
    return true;
  }
  return changed_.wait_until(
      lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(int64_t(deadline))),
      reached);
}

void EventState::Notify(uint64_t value, std::function<void()> notify) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (value_ < value) {
      notifications_.emplace_back(value, std::move(notify));
      return;
    }
  }
  notify();
}

uint64_t EventState::Promise(uint64_t value, std::shared_ptr<Point> point) {
  std::lock_guard<std::mutex> lock(mutex_);
  promises_.push_back({++promised_, value, std::move(point)});
  changed_.notify_all();
  return promised_;
}

void EventState::Hold(uint64_t value, Stream& stream) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] {
    if (value_ >= value) return true;
    for (const auto& p : promises_) {
      if (p.value >= value && stream.StartAfter(*p.point)) return true;
    }
    return false;
  });
}

void* Arena::Allocate(size_t bytes) {
  bytes = (bytes + 15) / 16 * 16;
  if (bytes > kBlock) {
    large_.push_back(std::unique_ptr<char[]>(new char[bytes]));
    return large_.back().get();
  }
  if (used_ + bytes > kBlock || blocks_.empty()) {
    blocks_.push_back(std::unique_ptr<char[]>(new char[kBlock]));
    used_ = 0;
  }
  void* memory = blocks_.back().get() + used_;
  used_ += bytes;
  return memory;
}

void Arena::Reset() {
  large_.clear();
  if (blocks_.size() > 1) blocks_.resize(1);
  used_ = blocks_.empty() ? kBlock : 0;
}

Command& CommandList::Add(CommandType type) {
  commands.emplace_back();
  Command& command = commands.back();
  command.type = type;
  command.overlaps = false;
  command.encoder = encoders ? encoders - 1 : 0;
  return command;
}

void CommandList::Fail(int code, std::string message) {
  Add(CommandType::kFail).index = failures.size();
  failures.push_back({code, std::move(message)});
}

void CommandList::AddCall(Call call) {
  Add(CommandType::kCall).index = calls.size();
  calls.push_back(std::move(call));
}

void CommandList::Clear() {
  commands.clear();
  failures.clear();
  calls.clear();
  kept.clear();
  encoders = 0;
  arena.Reset();
}

namespace {

bool IsDispatch(const Command& c) {
  return c.type == CommandType::kDispatch || c.type == CommandType::kIndirect;
}

// Fills in the grid of an indirect dispatch. False: it is empty.
bool Resolve(const Command& c, Stream& stream, DispatchCommand* out, Failure* failure) {
  *out = c.dispatch;
  if (c.type != CommandType::kIndirect) return true;
  uint32_t grid[3];
  *failure = stream.Read(grid, c.indirect, sizeof grid);
  if (*failure) return false;
  for (int i = 0; i < 3; ++i) {
    uint32_t groups = grid[i];
    uint64_t threads = uint64_t(groups) * out->threadgroup_size[i];
    if (threads > UINT32_MAX) {
      *failure = {kInternal, "[dispatchThreadgroupsWithIndirectBuffer] " + std::to_string(threads) +
                                 " threads in one dimension; the limit is 4294967295"};
      return false;
    }
    out->threadgroups[i] = groups;
    out->threads[i] = uint32_t(threads);
  }
  return out->threads[0] && out->threads[1] && out->threads[2];
}

Failure Copy(const Command& c, Stream& stream) {
  const CopyBox& box = *c.box;
  Failure failure;
  for (size_t z = 0; z < box.images && !failure; ++z) {
    char* to = static_cast<char*>(c.destination) + z * box.destination_image;
    const char* from = static_cast<const char*>(c.source) + z * box.source_image;
    if (box.source_row == c.bytes && box.destination_row == c.bytes) {  // back to back
      failure = stream.Copy(to, from, c.bytes * box.rows);
      continue;
    }
    for (size_t y = 0; y < box.rows && !failure; ++y) {
      failure = stream.Copy(to + y * box.destination_row, from + y * box.source_row, c.bytes);
    }
  }
  return failure;
}

}  // namespace

namespace {

// Up to the end or the first failure, of which *at is the command.
Failure ExecuteInOrder(CommandList& list, Stream& stream, const LaterSignal& later,
                       Outcome* outcome, size_t* at) {
  std::vector<DispatchCommand> batch;
  std::shared_ptr<Point> last;  // behind the command before, if one was asked for
  size_t n = list.commands.size();
  for (size_t& i = *at; i < n; ++i) {
    const Command& c = list.commands[i];
    outcome->encoder = c.encoder;
    if (c.type != CommandType::kSignal) last = nullptr;
    Failure failure;
    switch (c.type) {
      case CommandType::kDispatch:
      case CommandType::kIndirect: {
        DispatchCommand one;
        bool runs = Resolve(c, stream, &one, &failure);
        if (failure) return failure;
        if (i + 1 < n && list.commands[i + 1].overlaps && IsDispatch(list.commands[i + 1])) {
          batch.clear();
          if (runs) batch.push_back(one);
          while (i + 1 < n && list.commands[i + 1].overlaps && IsDispatch(list.commands[i + 1])) {
            runs = Resolve(list.commands[++i], stream, &one, &failure);
            if (failure) break;
            if (runs) batch.push_back(one);
          }
          if (!failure && !batch.empty()) failure = stream.Dispatch(batch.data(), batch.size());
        } else if (runs) {
          failure = stream.Dispatch(&one, 1);
        }
        break;
      }
      case CommandType::kCopy:
        failure = stream.Copy(c.destination, c.source, c.bytes);
        break;
      case CommandType::kCopyBox:
        failure = Copy(c, stream);
        break;
      case CommandType::kFill:
        failure = stream.Fill(c.destination, c.value, c.bytes);
        break;
      case CommandType::kWait:
        c.event->Hold(c.event_value, stream);
        break;
      case CommandType::kSignal:
        if (!last) last = stream.Mark();
        if (last) {
          later(last, c.event, c.event->Promise(c.event_value, last), c.event_value);
        } else {
          failure = stream.Finish();
          if (!failure) c.event->Signal(c.event_value);
        }
        break;
      case CommandType::kNothing:
        break;
      case CommandType::kCall:
        failure = list.calls[c.index](list, stream);
        break;
      case CommandType::kFail:
        failure = list.failures[c.index];
        break;
    }
    if (failure) return failure;
    // The last of those that overlapped none: nothing overlaps a sampled command.
    const Command& done = list.commands[i];
    if (!done.sampled[0]) continue;
    failure = stream.Sample(done.sampled[0], done.sampled[1]);
    if (failure) return failure;
    last = nullptr;
  }
  outcome->end = last ? last : stream.Mark();
  return outcome->end ? Failure{} : stream.Finish();
}

}  // namespace

Outcome Execute(CommandList& list, Stream& stream, const LaterSignal& later) {
  size_t at = 0;
  Outcome outcome;
  outcome.failure = ExecuteInOrder(list, stream, later, &outcome, &at);
  if (!outcome.failure) return outcome;
  // It fails alone: others wait for its events, and would do so for ever.
  outcome.end = stream.Mark();
  if (!outcome.end) stream.Finish();
  for (; at < list.commands.size(); ++at) {
    const Command& c = list.commands[at];
    if (c.type != CommandType::kSignal) continue;
    if (outcome.end) {
      later(outcome.end, c.event, c.event->Promise(c.event_value, outcome.end), c.event_value);
    } else {
      c.event->Signal(c.event_value);
    }
  }
  return outcome;
}

}  // namespace hostmetal
