// A process that was forked from one that has used the device: the threads that do the device's
// work did not come along, and locks may be held by threads that are no more. Nothing here may wait
// for either, so TensorFlow's requests there end in a sentence before a lock is taken.

#ifndef METAL_OPS_DEVICE_FORK_H_
#define METAL_OPS_DEVICE_FORK_H_

#import <Metal/Metal.h>
#include <dispatch/dispatch.h>

#include "tensorflow/c/tf_status.h"

namespace metal_device {

// From the first stream on, forks of this process are noticed; with a GPU from loading on.
void WatchForks();

// Whether this is the child of such a fork.
bool Forked();

// The error for callers that use the device there.
const char* WhyNotForked();

// False, and the sentence as the status, in such a child.
bool CheckFork(TF_Status* status);

// The stand-ins for a tensor's memory and for a stream's queue: made before the fork, and never
// written to, as every writer gets an error.
id<MTLBuffer> BufferOfForked();
dispatch_queue_t QueueOfForked();

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_FORK_H_
