// Device memory: see memory.h.

#include "device/memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "device/fork.h"
#include "kernels/runtime/platform.h"

namespace metal_device {
namespace {

struct Live {
  uint64_t length;
  id<MTLBuffer> buffer;
};

struct Memory {
  id<MTLDevice> device = nil;
  bool scribble = false;

  std::mutex mutex;  // guards `now`
  MemoryStatistics now;

  std::shared_mutex live_mutex;
  std::map<uintptr_t, Live> live;  // by address
};

// Leaked: TensorFlow frees tensors while the process exits.
Memory& TheMemory() {
  static Memory* memory = new Memory();
  return *memory;
}

// After the last reference: TensorFlow's, or that of the last command buffer which used it.
void Freed(void* address, size_t length) {
  Memory& memory = TheMemory();
  // A tensor used after its end then reads NaN, not the old values that would hide the mistake.
  if (memory.scribble) metal_ops::ScribbleOver(address, length);
  {
    std::unique_lock<std::shared_mutex> lock(memory.live_mutex);
    memory.live.erase(reinterpret_cast<uintptr_t>(address));
  }
  std::lock_guard<std::mutex> lock(memory.mutex);
  memory.now.in_use -= static_cast<int64_t>(length);
  memory.now.abandoned -= static_cast<int64_t>(length);
}

}  // namespace

void InitMemory(id<MTLDevice> device, int64_t limit) {
  Memory& memory = TheMemory();
  memory.device = [device retain];
  memory.now.limit = limit;
  for (const char* variable : {"METAL_DEVICE_WRAPPER_TYPE", "METAL_OPS_DEVICE_SCRIBBLE"}) {
    const char* text = getenv(variable);
    memory.scribble = memory.scribble || (text != nullptr && strcmp(text, "1") == 0);
  }
}

void* NewBuffer(uint64_t length) {
  // Not "out of memory": TensorFlow goes on to what tells the reason.
  if (Forked()) return (void*)BufferOfForked();
  Memory& memory = TheMemory();
  const int64_t bytes = static_cast<int64_t>(length);
  {
    // Counted before it is made, so that two threads cannot both take the last bytes.
    std::lock_guard<std::mutex> lock(memory.mutex);
    if (bytes < 0 || bytes > memory.now.limit - memory.now.in_use) return nullptr;
    memory.now.in_use += bytes;
  }
  void* address = nullptr;
  id<MTLBuffer> buffer = static_cast<id<MTLBuffer> >(
      metal_ops::NewTensorMemory(memory.device, length, Freed, &address));
  if (buffer != nil) {
    std::unique_lock<std::shared_mutex> lock(memory.live_mutex);
    memory.live[reinterpret_cast<uintptr_t>(address)] = {length, buffer};
  }
  std::lock_guard<std::mutex> lock(memory.mutex);
  if (buffer == nil) {
    memory.now.in_use -= bytes;
    return nullptr;
  }
  ++memory.now.allocations;
  memory.now.peak_in_use = std::max(memory.now.peak_in_use, memory.now.in_use);
  memory.now.largest = std::max(memory.now.largest, bytes);
  return address;
}

void AbandonBuffer(void* opaque) {
  if (Forked()) return;
  Memory& memory = TheMemory();
  Live abandoned;
  {
    std::shared_lock<std::shared_mutex> lock(memory.live_mutex);
    abandoned = memory.live.at(reinterpret_cast<uintptr_t>(opaque));
  }
  {
    std::lock_guard<std::mutex> lock(memory.mutex);
    memory.now.abandoned += static_cast<int64_t>(abandoned.length);
  }
  [abandoned.buffer release];
}

bool Resolve(const void* opaque, id<MTLBuffer>* buffer, uint64_t* offset) {
  if (Forked()) {
    *buffer = BufferOfForked();
    *offset = 0;
    return true;
  }
  if (metal_ops::IsTensorBuffer(opaque)) {
    *buffer = (id<MTLBuffer>)const_cast<void*>(opaque);
    *offset = 0;
    return true;
  }
  Memory& memory = TheMemory();
  const uintptr_t address = reinterpret_cast<uintptr_t>(opaque);
  std::shared_lock<std::shared_mutex> lock(memory.live_mutex);
  auto it = memory.live.upper_bound(address);
  if (it == memory.live.begin()) return false;
  --it;
  *buffer = it->second.buffer;
  *offset = address - it->first;
  return *offset == 0 || *offset < it->second.length;
}

id<MTLDevice> TheDevice() { return TheMemory().device; }

bool HasUnifiedMemory() { return [TheMemory().device hasUnifiedMemory]; }

MemoryStatistics GetMemoryStatistics() {
  Memory& memory = TheMemory();
  std::unique_lock<std::mutex> lock(memory.mutex, std::defer_lock);
  if (!Forked()) lock.lock();
  return memory.now;
}

}  // namespace metal_device
