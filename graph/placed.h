// Inlining, placement and fusion of a function that is not run.

#ifndef METAL_OPS_GRAPH_PLACED_H_
#define METAL_OPS_GRAPH_PLACED_H_

#include <string>

#include "graph/pass.h"
#include "tensorflow/core/framework/device.h"

namespace metal_ops::fusion {

// A device that can be placed on, and nothing else: the real ones belong to TensorFlow's runtime.
class NamedDevice : public tensorflow::Device {
 public:
  NamedDevice(const std::string& name, const std::string& type)
      : Device(nullptr, BuildDeviceAttributes(name, tensorflow::DeviceType(type),
                                              tensorflow::Bytes(1 << 30), {})) {}
  absl::Status Sync() override { return absl::OkStatus(); }
  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes) override { return nullptr; }
};

// The request: functions in the library; nodes say the rest: one "Function", whose name is the
// function's; "Device"s with a name and a device type; one "_Arg" for each argument in order, with
// a device and attributes that hold its shape.
absl::Status PlaceAndFuse(const tensorflow::GraphDef& request, Recording* recording);

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_PLACED_H_
