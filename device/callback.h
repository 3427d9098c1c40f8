// Shared by every callback that TensorFlow calls: an autorelease pool, and a stop for exceptions.

#ifndef METAL_OPS_DEVICE_CALLBACK_H_
#define METAL_OPS_DEVICE_CALLBACK_H_

#import <Foundation/Foundation.h>

#include <exception>
#include <string>

#include "device/device.h"
#include "device/stream.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"

namespace metal_device {

using Stream = MetalDeviceStream;

inline Device& ToDevice(const SP_Device* device) {
  return *Devices()[static_cast<size_t>(device->ordinal)];
}

// TensorFlow calls from threads that have no autorelease pool, and an exception may not pass
// through its frames.
// `device` is whose memory cannot be trusted after one; null if no memory is touched.
template <typename Body>
void Guarded(const SP_Device* device, TF_Status* status, Body body) {
  const auto stopped = [&](const std::string& what) {
    const std::string text = "METAL device: " + what;
    if (status != nullptr) TF_SetStatus(status, TF_INTERNAL, text.c_str());
    if (device != nullptr) ReportError(ToDevice(device), text);
  };
  @autoreleasepool {
    @try {
      try {
        body();
      } catch (const std::exception& error) {
        stopped(error.what());
      }
    } @catch (NSException* exception) {
      stopped(std::string([[exception name] UTF8String]) + ": " + [[exception reason] UTF8String]);
    }
  }
}

inline Stream* ToStream(SP_Stream stream) { return (Stream*)(void*)stream; }

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_CALLBACK_H_
