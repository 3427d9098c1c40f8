// Counters by which the threadgroups of a launch know which of them is the last, where
// FencesReachDevice(): numbers in device memory that each first raises to `begin`, which no earlier
// launch came to, and then counts up. So nothing has to be cleared, and a launch that fails halfway
// leaves nothing that the next ones would count.
//
//   LaunchCounters counters;
//   RETURN_IF_ERROR(encoder.Counters(&counters));
//   encoder.Launch(..., {{"counters", Value::Buffer(counters.buffer, DType::kInt32)}, ...});

#ifndef METAL_OPS_KERNELS_RUNTIME_COUNTERS_H_
#define METAL_OPS_KERNELS_RUNTIME_COUNTERS_H_

#import <Metal/Metal.h>

#include <cstdint>

#include "kernels/runtime/status.h"

namespace metal_ops {

struct LaunchCounters {
  static constexpr int64_t kNumbers = 512;      // of a launch
  static constexpr uint32_t kCounts = 1 << 11;  // that each may be counted up, and one more

  id<MTLBuffer> buffer = nil;
  uint32_t begin = 0;
};

// Counters of the next launch in a stream, whose launches run one after the other; no other
// stream's.
Status NextCounters(id<MTLDevice> device, const void* stream, LaunchCounters* counters);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_COUNTERS_H_
