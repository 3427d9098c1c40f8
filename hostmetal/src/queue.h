// The threads behind an MTLCommandQueue: one that runs command buffers and, where the device's
// streams run ahead of it, one that completes them.
#ifndef HOSTMETAL_SRC_QUEUE_H_
#define HOSTMETAL_SRC_QUEUE_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "hostmetal/src/command_buffer.h"

namespace hostmetal {

struct QueueState : std::enable_shared_from_this<QueueState> {
  explicit QueueState(Driver& driver, NSUInteger max) : stream(driver.NewStream()), slots(max) {}
  ~QueueState() { [handlers release]; }

  // Command buffers that are not completed: limited, so that a program cannot run ahead without
  // end. A completed one's memory is the next one's.
  void AcquireSlot(CommandBufferState& b);
  void ReleaseSlot(CommandBufferState& b);

  // Appends (and retains) a command buffer; it runs once it is committed and all before it have
  // run.
  void Append(HMCommandBuffer* buffer);
  void Committed() { changed.Increment(); }
  void Stop();

  // Runs and completes committed work on the calling thread until `buffer` is done, unless the
  // queue's threads are at it: a waiting thread does not have to wake another one, which can cost
  // more than the work.
  void Help(HMCommandBuffer* buffer);
  // Wakes the queue's threads if there is something for them: they may have come, found that
  // another thread is at it and gone to sleep.
  void WakeForRest();
  // How long a waiter looks before it sleeps: an empty command buffer is done sooner.
  uint64_t SpinNs() const { return runs_ahead ? kSpinAheadNs : kSpinNs; }

  // The serial queue that handlers run on, so that they may block without stopping the device.
  dispatch_queue_t Handlers();

  std::unique_ptr<Stream> stream;
  std::shared_ptr<LogState> log;  // of command buffers that name none; may be nullptr

 private:
  static constexpr uint64_t kSpinNs = 50000, kSpinAheadNs = 500000;

  // The rest of the work when a point of the stream passes: a signal to give, or a command buffer
  // that is done then.
  struct Pending {
    std::shared_ptr<Point> point;
    EventState* event = nullptr;
    uint64_t promise = 0, value = 0;
    HMCommandBuffer* buffer = nil;  // retained
    Failure failure;                // met before the point
    uint32_t encoder = 0;
  };

  static void Thread(void* context);
  static void CompletionThread(void* context);
  void Loop();
  void CompletionLoop();
  // Holds `running` and gives it back. `waiter`: unless nil, the command buffer that the calling
  // thread waits for.
  void Run(HMCommandBuffer* buffer, HMCommandBuffer* waiter);
  void Later(Pending pending);
  // Holds `completing` and gives it back.
  void Settle(Pending pending, HMCommandBuffer* waiter);
  // Takes the first command buffer, or the first pending entry, and runs or completes it. False if
  // there is none that may be now, or another thread is at it.
  bool RunNext(HMCommandBuffer* waiter);
  bool SettleNext(HMCommandBuffer* waiter);
  bool IsFirstReady() const;  // with `mutex` held

  std::mutex running;     // its holder takes command buffers and runs them
  std::mutex completing;  // its holder takes pending entries and completes them
  std::atomic<bool> runs_ahead{false};
  std::mutex mutex;  // guards the members below
  std::deque<HMCommandBuffer*> order;
  std::deque<Pending> pending;
  bool started = false;
  bool completion_started = false;
  bool stopping = false;
  dispatch_queue_t handlers = nil;
  WaitWord changed;
  WaitWord arrived;  // something pending

  // The containers that a command buffer filled, emptied for the next one.
  struct Spare {
    CommandList list;
    std::vector<id> resources;
  };
  static constexpr size_t kSpares = 8, kMost = 256;

  std::mutex slot_mutex;  // guards the members below
  std::condition_variable slot_free;
  NSUInteger slots;
  std::vector<Spare> spares;
};

// Called on the queue's thread.
void MarkScheduled(HMCommandBuffer* buffer);
// With `held`, its handlers may run on the calling thread, if none before them still runs; `held`
// is unlocked before they do, as handlers may wait for other command buffers, and in any case.
void MarkCompleted(HMCommandBuffer* buffer, Failure failure, uint32_t encoder, std::mutex* held);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_QUEUE_H_
