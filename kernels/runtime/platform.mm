// The differences between macOS and Linux: see platform.h.

#include "kernels/runtime/platform.h"

#import <Metal/Metal.h>

#include <dlfcn.h>
#if defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#else
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

namespace {

// Beside this library; where TensorFlow finds plugins by itself, which macOS' wheels use.
constexpr const char* kDevicePaths[] = {"libmetal_device.so",
                                        "../tensorflow-plugins/libmetal_device.dylib"};

using Resolve = bool (*)(const void* opaque, void** buffer, uint64_t* offset);
using Failure = const char* (*)(const void* stream);

// TensorFlow loads plugins with RTLD_LOCAL, so the default scope alone may not show the symbol.
void* FindInDevice(const char* symbol) {
  if (void* found = dlsym(RTLD_DEFAULT, symbol)) return found;
  std::string folder;
  if (!LibraryPath(&folder).ok()) folder.clear();
  folder.resize(folder.rfind('/') + 1);
  // The last one finds it elsewhere, by its own name.
  for (const std::string& name :
       {folder + kDevicePaths[0], folder + kDevicePaths[1], std::string(kDevicePaths[0])}) {
    if (void* handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
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
#if defined(__APPLE__)
    // tensorflow-metal's device memory is the MTLBuffer itself.
    *buffer = const_cast<void*>(opaque);
    *offset = 0;
    return Status();
#else
    return NotFound("the METAL device is not loaded, so its memory cannot be addressed; call "
                    "metal_ops.device.load() first");
#endif
  }
  if (!resolve(opaque, buffer, offset)) {
    return Internal("address ", opaque, " lies in no buffer of the METAL device");
  }
  return Status();
}

Status DeviceFailure(const void* stream) {
  static const auto failure = reinterpret_cast<Failure>(FindInDevice("metal_device_failure_on"));
  const char* message = failure == nullptr ? nullptr : failure(stream);
  return message == nullptr ? Status() : Internal(message);
}

const ProfilerHooks* DeviceProfiler() {
  const auto find =
      reinterpret_cast<const void* (*)()>(FindInDevice("metal_device_profiler_hooks"));
  return find == nullptr ? nullptr : static_cast<const ProfilerHooks*>(find());
}

bool IsDiscrete() {
  static const bool discrete = [] {
    id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
    return device != nil && ![device hasUnifiedMemory];
  }();
  return discrete;
}

#if defined(__APPLE__)

bool ThreadgroupsRunAtOnce() { return true; }

bool FencesReachDevice() { return false; }

bool WideVectors() { return false; }

Status ProcessorDevice(const char* what, void**) {
  return Unimplemented(what, " has no CPU kernel on macOS, where Metal runs on GPUs alone; install "
                             "tensorflow-metal and place it on the GPU: with tf.device('GPU:0')");
}

void* NewBufferOver(void*, void*, uint64_t) { return nullptr; }

uint64_t ReadBackOptions() { return MTLResourceStorageModeShared; }

void* NewDevices() {
  id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
  return device == nil ? [[NSArray alloc] init] : [[NSArray alloc] initWithObjects:device, nil];
}

// Metal takes whole pages of memory that is the program's own, and its addresses are TensorFlow's:
// an id<MTLBuffer> has no address in front of its bytes.
void* NewTensorMemory(void* device, uint64_t bytes, TensorMemoryFreed freed, void** address) {
  const uint64_t page = static_cast<uint64_t>(getpagesize());
  const uint64_t whole = (bytes / page + 1) * page;
  void* const memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  id<MTLBuffer> buffer = [static_cast<id<MTLDevice> >(device)
      newBufferWithBytesNoCopy:memory
                        length:whole
                       options:MTLResourceStorageModeShared
                   deallocator:^(void* pointer, NSUInteger length) {
                     freed(pointer, bytes);
                     munmap(pointer, length);
                   }];
  if (buffer == nil) munmap(memory, whole);
  *address = memory;
  return buffer;
}

void* NewTensorPart(void* buffer, uint64_t offset, uint64_t, TensorMemoryFreed, void** address) {
  *address = static_cast<char*>(TensorContents(buffer)) + offset;
  return nullptr;
}

void* TensorContents(void* buffer) { return [static_cast<id<MTLBuffer> >(buffer) contents]; }

bool IsTensorBuffer(const void*) { return false; }

void ScribbleOver(void* address, uint64_t bytes) { memset(address, 0xff, bytes); }

bool ReadTensorMemory(void* buffer, uint64_t offset, void* to, uint64_t bytes) {
  memcpy(to, static_cast<const char*>([static_cast<id<MTLBuffer> >(buffer) contents]) + offset,
         bytes);
  return true;
}

bool WriteTensorMemory(void* buffer, uint64_t offset, const void* from, uint64_t bytes) {
  memcpy(static_cast<char*>([static_cast<id<MTLBuffer> >(buffer) contents]) + offset, from, bytes);
  return true;
}

#else

// hostmetal's CPU device runs one threadgroup a core.
bool ThreadgroupsRunAtOnce() { return IsDiscrete(); }

bool FencesReachDevice() { return true; }

bool WideVectors() { return !ThreadgroupsRunAtOnce() && hostmetal_wide_vectors(); }

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

void* NewDevices() { return hostmetal_devices(); }

// The buffer lies in front of its own bytes, so that it is the address, too.
void* NewTensorMemory(void* device, uint64_t bytes, TensorMemoryFreed freed, void** address) {
  return *address = hostmetal_new_inline_buffer(static_cast<id<MTLDevice> >(device), bytes, freed);
}

void* NewTensorPart(void* buffer, uint64_t offset, uint64_t bytes, TensorMemoryFreed freed,
                    void** address) {
  return *address =
             hostmetal_new_inline_part(static_cast<id<MTLBuffer> >(buffer), offset, bytes, freed);
}

void* TensorContents(void* buffer) {
  return hostmetal_buffer_address(static_cast<id<MTLBuffer> >(buffer));
}

bool IsTensorBuffer(const void* address) { return hostmetal_is_inline_buffer(address); }

void ScribbleOver(void* address, uint64_t bytes) {
  hostmetal_fill(static_cast<id<MTLBuffer> >(address), 0, 0xff, bytes);
}

bool ReadTensorMemory(void* buffer, uint64_t offset, void* to, uint64_t bytes) {
  return hostmetal_read(static_cast<id<MTLBuffer> >(buffer), offset, to, bytes);
}

bool WriteTensorMemory(void* buffer, uint64_t offset, const void* from, uint64_t bytes) {
  return hostmetal_write(static_cast<id<MTLBuffer> >(buffer), offset, from, bytes);
}

#endif

}  // namespace metal_ops
