// The thread behind an MTLCommandQueue.
#ifndef HOSTMETAL_SRC_QUEUE_H_
#define HOSTMETAL_SRC_QUEUE_H_

#include <condition_variable>
#include <deque>
#include <mutex>

#include "hostmetal/src/internal.h"

namespace hostmetal {

struct QueueState {
  explicit QueueState(Driver& driver, NSUInteger max) : stream(driver.NewStream()), slots(max) {}
  ~QueueState() { [handlers release]; }

  // Command buffers that are not completed: limited, so that a program cannot run ahead without
  // end.
  void AcquireSlot();
  void ReleaseSlot();

  // Appends (and retains) a command buffer; it runs once it is committed and all before it have
  // run.
  void Append(HMCommandBuffer* buffer, const std::shared_ptr<QueueState>& self);
  void Committed() { changed.Increment(); }
  void Stop();

  // Runs what is committed on the calling thread until `buffer` is done, unless the queue's thread
  // is at it: a thread that waits need not wake another one, which can cost more than the work.
  void Help(HMCommandBuffer* buffer);

  // The serial queue that handlers run on, so that they may block without stopping the device.
  dispatch_queue_t Handlers();

  std::unique_ptr<Stream> stream;

 private:
  static void Thread(void* context);
  void Loop();
  void Run(HMCommandBuffer* buffer);
  // The first command buffer if it may run now, taken off the list; nil otherwise.
  HMCommandBuffer* TakeReady();
  bool HasReady();

  std::mutex running;  // whoever holds it takes command buffers and runs them
  std::mutex mutex;    // guards what follows
  std::deque<HMCommandBuffer*> order;
  bool started = false;
  bool stopping = false;
  dispatch_queue_t handlers = nil;
  WaitWord changed;

  std::mutex slot_mutex;
  std::condition_variable slot_free;
  NSUInteger slots;
};

// Called on the queue's thread.
void MarkScheduled(HMCommandBuffer* buffer);
void MarkCompleted(HMCommandBuffer* buffer, Failure failure, uint32_t encoder);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_QUEUE_H_
