// The METAL devices: see device.h.

#include "device/device.h"

#include <utility>

#include "device/fork.h"

namespace metal_device {

// Leaked: TensorFlow uses them while the process exits.
std::vector<Device*>& Devices() {
  static auto* const devices = new std::vector<Device*>();
  return *devices;
}

Device& DeviceOf(id<MTLDevice> metal) {
  std::vector<Device*>& devices = Devices();
  for (size_t i = 1; i < devices.size(); ++i) {
    if (devices[i]->metal == metal) return *devices[i];
  }
  return *devices[0];
}

void ReportError(Device& device, const std::string& message) {
  if (Forked()) return;
  std::lock_guard<std::mutex> lock(device.error_mutex);
  if (device.failed) return;  // failures after the first are often its consequences
  device.error =
      Devices().size() == 1 ? message : "GPU:" + std::to_string(device.ordinal) + ": " + message;
  device.failed = true;
}

bool PeekError(Device& device, std::string* message) {
  if (Forked()) {
    if (message != nullptr) *message = WhyNotForked();
    return true;
  }
  if (!device.failed) return false;  // asked around every launch
  std::lock_guard<std::mutex> lock(device.error_mutex);
  if (device.failed && message != nullptr) *message = device.error;
  return device.failed;
}

bool TakeError(Device& device, std::string* message) {
  if (Forked()) return PeekError(device, message);  // for good
  std::lock_guard<std::mutex> lock(device.error_mutex);
  if (!device.failed) return false;
  if (message != nullptr) *message = std::move(device.error);
  device.failed = false;
  device.error.clear();
  return true;
}

std::string DescribeFailure(const std::string& message) {
  if (Forked()) return message;
  return "METAL device: work on the device failed earlier, so what is in its memory cannot be "
         "trusted: " +
         message +
         ". metal_ops.device.clear_error() makes the device usable again; "
         "METAL_DEVICE_WRAPPER_TYPE=1 in the environment finds the op that failed.";
}

}  // namespace metal_device
