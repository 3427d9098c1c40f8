// The SP_StreamExecutor table: TensorFlow's functions for memory, streams, events, timers and
// copies.

#ifndef METAL_OPS_DEVICE_EXECUTOR_H_
#define METAL_OPS_DEVICE_EXECUTOR_H_

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

namespace metal_device {

void FillStreamExecutor(SP_StreamExecutor* executor);
// Its part that moves bytes (copies.mm).
void FillCopies(SP_StreamExecutor* executor);
void FillTimerFns(SP_TimerFns* fns);

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_EXECUTOR_H_
