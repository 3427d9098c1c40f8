// Forks: see fork.h.

#include "device/fork.h"

#include <pthread.h>

#include <atomic>

#include "device/device.h"

namespace metal_device {
namespace {

std::atomic<bool> forked{false};
id<MTLBuffer> buffer = nil;
dispatch_queue_t queue = nullptr;

}  // namespace

void WatchForks() {
  static const bool watching = [] {
    buffer = [Devices()[0]->metal newBufferWithLength:16 options:MTLResourceStorageModeShared];
    queue = dispatch_queue_create("metal_ops.device.forked", DISPATCH_QUEUE_SERIAL);
    return pthread_atfork(nullptr, nullptr,
                          [] { forked.store(true, std::memory_order_relaxed); }) == 0;
  }();
  (void)watching;  // without memory for it a fork is as it was
}

bool Forked() { return forked.load(std::memory_order_relaxed); }

const char* WhyNotForked() {
  return Devices()[0]->has_unified_memory
             ? "METAL device: this process was forked from one that had used the device, whose "
               "threads did not come along; start it by multiprocessing.get_context('spawn') or "
               "'forkserver', or fork before the device is used"
             : "METAL device: this process was forked from one that had used the device: a GPU's "
               "driver does not come along; start it by multiprocessing.get_context('spawn') or "
               "'forkserver', or fork before metal_ops.device.load()";
}

bool CheckFork(TF_Status* status) {
  if (!Forked()) return true;
  TF_SetStatus(status, TF_INTERNAL, WhyNotForked());
  return false;
}

id<MTLBuffer> BufferOfForked() { return buffer; }
dispatch_queue_t QueueOfForked() { return queue; }

}  // namespace metal_device
