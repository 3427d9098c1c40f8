// The commands that encoders record and queues execute. Plain C++: no Objective-C message is sent
// while a command buffer runs.
#ifndef HOSTMETAL_SRC_COMMAND_LIST_H_
#define HOSTMETAL_SRC_COMMAND_LIST_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hostmetal/src/driver.h"

namespace hostmetal {

// The value of an MTLEvent, and who waits for it.
class EventState {
 public:
  uint64_t value() const;
  void Signal(uint64_t value);
  // False when `deadline` (Now()'s clock) came first.
  bool Wait(uint64_t value, uint64_t deadline);
  // Calls `notify` once the value is reached, now or from Signal().
  void Notify(uint64_t value, std::function<void()> notify);
  // The value is to come when `point` passes; Keep() takes the result.
  uint64_t Promise(uint64_t value, std::shared_ptr<Point> point);
  // A promised value has come. Each queue's thread says so for itself, so that an earlier promise
  // may be kept after a later one: it leaves the value alone.
  void Keep(uint64_t promise, uint64_t value);
  // Later work of `stream` starts once the value is reached; returns at once where the stream
  // itself can wait for a promise.
  void Hold(uint64_t value, Stream& stream);

 private:
  struct Promised {
    uint64_t id, value;
    std::shared_ptr<Point> point;
  };
  // Sets the value, for the holder of the lock, and returns the functions to call without it.
  std::vector<std::function<void()>> Set(uint64_t value);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t value_ = 0;
  std::vector<std::pair<uint64_t, std::function<void()>>> notifications_;
  std::vector<Promised> promises_;
  uint64_t promised_ = 0, kept_ = 0;  // the newest promise given, and kept
};

// Memory that lives as long as a command buffer: bindings and setBytes data.
class Arena {
 public:
  void* Allocate(size_t bytes);
  // Keeps a block for the next allocations.
  void Reset();

 private:
  static constexpr size_t kBlock = 16384;
  std::vector<std::unique_ptr<char[]>> blocks_, large_;
  size_t used_ = kBlock;
};

enum class CommandType : uint8_t {
  kDispatch,
  kIndirect,
  kCopy,
  kCopyBox,
  kFill,
  kWait,
  kSignal,
  kNothing,  // to be sampled where no command was before
  kCall,
  kFail
};

// Rows of `bytes`, as they lie in images of a source and a destination.
struct CopyBox {
  size_t rows, images;
  size_t source_row, source_image;
  size_t destination_row, destination_image;
};

struct Command {
  CommandType type;
  bool overlaps;     // may run together with the command before it
  uint32_t encoder;  // number of its encoder in the command buffer
  DispatchCommand dispatch;
  const uint32_t* indirect;  // threadgroups per grid, read when the command runs
  // Where the time goes when it is done; two, as a pass begins as the one before it ends.
  std::atomic<uint64_t>* sampled[2];
  void* destination;
  const void* source;
  size_t bytes;
  const CopyBox* box;  // of kCopyBox
  uint8_t value;
  EventState* event;
  uint64_t event_value;
  size_t index;  // of kFail, into CommandList::failures; of kCall, into calls
};

struct CommandList {
  // A call that decides the stream's work only when it runs.
  using Call = std::function<Failure(CommandList&, Stream&)>;

  Arena arena;
  std::vector<Command> commands;
  std::vector<Failure> failures;
  std::vector<Call> calls;
  std::vector<std::shared_ptr<const void>> kept;  // by calls, until the work is done
  uint32_t encoders = 0;

  Command& Add(CommandType type);
  void AddCall(Call call);
  // The command buffer will stop here with this error.
  void Fail(int code, std::string message);
  void Clear();
};

// The outcome of a list. With an `end`, its work goes on until that has passed, and may fail yet.
struct Outcome {
  Failure failure;
  uint32_t encoder = 0;  // number of the encoder whose command failed
  std::shared_ptr<Point> end;
};

// A signal that has to be given when a point of the stream passes.
using LaterSignal =
    std::function<void(std::shared_ptr<Point>, EventState*, uint64_t promise, uint64_t value)>;

// Runs the list, or gives it to a stream that runs it.
Outcome Execute(CommandList& list, Stream& stream, const LaterSignal& later);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_COMMAND_LIST_H_
