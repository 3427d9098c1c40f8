// What every callback that TensorFlow calls needs: an autorelease pool, and a stop for exceptions.

#ifndef METAL_OPS_DEVICE_CALLBACK_H_
#define METAL_OPS_DEVICE_CALLBACK_H_

#import <Foundation/Foundation.h>

#include <exception>
#include <string>

#include "device/stream.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"

namespace metal_device {

using Stream = MetalDeviceStream;

// TensorFlow calls from threads that have no autorelease pool, and an exception may not pass
// through its frames.
template <typename Body>
void Guarded(TF_Status* status, Body body) {
  @autoreleasepool {
    @try {
      try {
        body();
      } catch (const std::exception& error) {
        const std::string text = std::string("METAL device: ") + error.what();
        if (status != nullptr) TF_SetStatus(status, TF_INTERNAL, text.c_str());
        ReportError(text);
      }
    } @catch (NSException* exception) {
      const std::string text = std::string("METAL device: ") + [[exception name] UTF8String] +
                               ": " + [[exception reason] UTF8String];
      if (status != nullptr) TF_SetStatus(status, TF_INTERNAL, text.c_str());
      ReportError(text);
    }
  }
}

inline Stream* ToStream(SP_Stream stream) { return (Stream*)(void*)stream; }

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_CALLBACK_H_
