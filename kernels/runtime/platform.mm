// What differs between macOS and Linux: see platform.h.

#include "kernels/runtime/platform.h"

#import <Metal/Metal.h>

#include <dlfcn.h>
#if !defined(__APPLE__)
#include <hostmetal.h>
#endif

namespace metal_ops {

Status LibraryPath(std::string* path) {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&LibraryPath), &info) == 0 ||
      info.dli_fname == nullptr) {
    return Internal("dladdr cannot tell where the Metal kernels were loaded from");
  }
  *path = info.dli_fname;
  return Status();
}

#if defined(__APPLE__)

// tensorflow-metal's device memory is the MTLBuffer itself.
Status ResolveOpaque(const void* opaque, void** buffer, uint64_t* offset) {
  *buffer = const_cast<void*>(opaque);
  *offset = 0;
  return Status();
}

Status DeviceFailure() { return Status(); }

const ProfilerHooks* DeviceProfiler() { return nullptr; }

bool ThreadgroupsRunAtOnce() { return true; }

Status ProcessorDevice(const char* what, void**) {
  return Unimplemented(what, " has no CPU kernel on macOS, where Metal runs on GPUs alone; install "
                             "tensorflow-metal and place it on the GPU: with tf.device('GPU:0')");
}

void* NewBufferOver(void*, void*, uint64_t) { return nullptr; }

uint64_t ReadBackOptions() { return MTLResourceStorageModeShared; }

#else

namespace {

using Resolve = bool (*)(const void* opaque, void** buffer, uint64_t* offset);
using Failure = const char* (*)();

// TensorFlow loads plugins with RTLD_LOCAL, so the default scope alone may not show the symbol.
void* FindInDevice(const char* symbol) {
  if (void* found = dlsym(RTLD_DEFAULT, symbol)) return found;
  std::string beside;
  if (!LibraryPath(&beside).ok()) beside.clear();
  beside = beside.substr(0, beside.rfind('/') + 1) + "libmetal_device.so";
  for (const char* name : {beside.c_str(), "libmetal_device.so"}) {
    if (void* handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
      if (void* found = dlsym(handle, symbol)) return found;
    }
  }
  return nullptr;
}

}  // namespace

// TensorFlow also hands out sub-slices: plain pointer arithmetic on the opaque pointer. The device
// knows its buffers.
Status ResolveOpaque(const void* opaque, void** buffer, uint64_t* offset) {
  static const auto resolve = reinterpret_cast<Resolve>(FindInDevice("metal_device_resolve"));
  if (resolve == nullptr) {
    return NotFound("the METAL device is not loaded, so its memory cannot be addressed; call "
                    "metal_ops.device.load() first");
  }
  if (!resolve(opaque, buffer, offset)) {
    return Internal("address ", opaque, " lies in no buffer of the METAL device");
  }
  return Status();
}

Status DeviceFailure() {
  static const auto failure = reinterpret_cast<Failure>(FindInDevice("metal_device_failure"));
  const char* message = failure == nullptr ? nullptr : failure();
  return message == nullptr ? Status() : Internal(message);
}

const ProfilerHooks* DeviceProfiler() {
  const auto find = reinterpret_cast<const void* (*)()>(FindInDevice("metal_device_profiler"));
  return find == nullptr ? nullptr : static_cast<const ProfilerHooks*>(find());
}

bool ThreadgroupsRunAtOnce() {
  // Memory of its own: a GPU. hostmetal's CPU device runs one threadgroup a core.
  static const bool gpu = ![[MTLCreateSystemDefaultDevice() autorelease] hasUnifiedMemory];
  return gpu;
}

uint64_t ReadBackOptions() {
  return MTLResourceStorageModeShared | MTLResourceCPUCacheModeWriteCombined;
}

Status ProcessorDevice(const char*, void** device) {
  *device = hostmetal_processor();
  return Status();
}

void* NewBufferOver(void* processor, void* memory, uint64_t bytes) {
  return hostmetal_new_buffer_over(static_cast<id<MTLDevice> >(processor), memory, bytes);
}

#endif

}  // namespace metal_ops
