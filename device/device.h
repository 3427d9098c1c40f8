// The METAL devices of this process, TensorFlow's GPU:0 and on: each one's own state.

#ifndef METAL_OPS_DEVICE_DEVICE_H_
#define METAL_OPS_DEVICE_DEVICE_H_

#import <Metal/Metal.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace metal_device {

struct MemoryStatistics {
  int64_t allocations = 0;  // ever made
  int64_t in_use = 0;       // bytes, including abandoned ones
  int64_t abandoned = 0;    // bytes of buffers that only command buffers still hold
  int64_t peak_in_use = 0;
  int64_t largest = 0;
  int64_t limit = 0;
};

struct Device {
  id<MTLDevice> metal = nil;  // retained
  int ordinal = 0;
  std::string name;                 // the hardware's
  bool has_unified_memory = false;  // whether the host's memory is the device's
  int64_t most_abandoned = 0;       // bytes, before an allocation waits for them

  std::mutex memory_mutex;  // guards `memory`
  MemoryStatistics memory;

  std::mutex error_mutex;  // guards `error`
  std::atomic<bool> failed{false};
  std::string error;
};

// By ordinal. Empty if the plugin has declined; never changed once TensorFlow has looked for them.
std::vector<Device*>& Devices();

// The one that it is; it has to be there.
Device& DeviceOf(id<MTLDevice> metal);

// The first failure of the device's command buffers or host callbacks since the last TakeError. It
// stays: whatever that work should have written is garbage, and nothing says which tensors those
// are.
bool PeekError(Device& device, std::string* message);
bool TakeError(Device& device, std::string* message);
void ReportError(Device& device, const std::string& message);
// The error for a caller that meets a failure of earlier work.
std::string DescribeFailure(const std::string& message);

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_DEVICE_H_
