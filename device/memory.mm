// Device memory: see memory.h.

#include "device/memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "device/fork.h"
#include "kernels/runtime/platform.h"

namespace metal_device {
namespace {

struct Live {
  uint64_t length;
  id<MTLBuffer> buffer;
  Device* device;  // null for a part
  bool fresh;      // until its first copy or fill
};

struct Memory {
  bool scribble = false;

  std::shared_mutex live_mutex;
  std::map<uintptr_t, Live> live;  // by address, of all devices
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
  Device* device = nullptr;
  {
    std::unique_lock<std::shared_mutex> lock(memory.live_mutex);
    const auto it = memory.live.find(reinterpret_cast<uintptr_t>(address));
    device = it->second.device;
    memory.live.erase(it);
  }
  std::lock_guard<std::mutex> lock(device->memory_mutex);
  device->memory.in_use -= static_cast<int64_t>(length);
  device->memory.abandoned -= static_cast<int64_t>(length);
}

// A part's memory is the whole's, which is counted already.
void FreedPart(void* address, size_t) {
  Memory& memory = TheMemory();
  std::unique_lock<std::shared_mutex> lock(memory.live_mutex);
  memory.live.erase(reinterpret_cast<uintptr_t>(address));
}

}  // namespace

void InitMemory() {
  Memory& memory = TheMemory();
  for (const char* variable : {"METAL_DEVICE_WRAPPER_TYPE", "METAL_OPS_DEVICE_SCRIBBLE"}) {
    const char* text = getenv(variable);
    memory.scribble = memory.scribble || (text != nullptr && strcmp(text, "1") == 0);
  }
}

void* NewBuffer(Device& device, uint64_t length) {
  // Not "out of memory": TensorFlow goes on to a call that tells the reason.
  if (Forked()) return (void*)BufferOfForked();
  Memory& memory = TheMemory();
  MemoryStatistics& now = device.memory;
  const int64_t bytes = static_cast<int64_t>(length);
  {
    // Counted before it is made, so that two threads cannot both take the last bytes.
    std::lock_guard<std::mutex> lock(device.memory_mutex);
    if (bytes < 0 || bytes > now.limit - now.in_use) return nullptr;
    now.in_use += bytes;
  }
  void* address = nullptr;
  id<MTLBuffer> buffer = static_cast<id<MTLBuffer> >(
      metal_ops::NewTensorMemory(device.metal, length, Freed, &address));
  if (buffer != nil) {
    std::unique_lock<std::shared_mutex> lock(memory.live_mutex);
    memory.live[reinterpret_cast<uintptr_t>(address)] = {length, buffer, &device, true};
  }
  std::lock_guard<std::mutex> lock(device.memory_mutex);
  if (buffer == nil) {
    now.in_use -= bytes;
    return nullptr;
  }
  ++now.allocations;
  now.peak_in_use = std::max(now.peak_in_use, now.in_use);
  now.largest = std::max(now.largest, bytes);
  return address;
}

void AbandonBuffer(Device& device, void* opaque) {
  if (Forked()) return;
  Memory& memory = TheMemory();
  Live abandoned;
  {
    std::shared_lock<std::shared_mutex> lock(memory.live_mutex);
    abandoned = memory.live.at(reinterpret_cast<uintptr_t>(opaque));
  }
  {
    std::lock_guard<std::mutex> lock(device.memory_mutex);
    device.memory.abandoned += static_cast<int64_t>(abandoned.length);
  }
  [abandoned.buffer release];
}

void* NewPart(const void* opaque, uint64_t offset, uint64_t length) {
  id<MTLBuffer> whole = nil;
  uint64_t before = 0;
  if (Forked() || !Resolve(opaque, &whole, &before)) return nullptr;
  void* address = nullptr;
  id<MTLBuffer> part = static_cast<id<MTLBuffer> >(
      metal_ops::NewTensorPart(whole, before + offset, length, FreedPart, &address));
  if (part == nil) return address;
  Memory& memory = TheMemory();
  std::unique_lock<std::shared_mutex> lock(memory.live_mutex);
  memory.live[reinterpret_cast<uintptr_t>(address)] = {length, part, nullptr, false};
  return address;
}

void AbandonPart(void* opaque) {
  id<MTLBuffer> part = nil;
  uint64_t offset = 0;
  // Where an address in the whole is all that a part is, nothing was made.
  if (Forked() || !metal_ops::IsTensorBuffer(opaque) || !Resolve(opaque, &part, &offset)) return;
  [part release];
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

bool TakeFresh(const void* opaque, uint64_t length) {
  if (Forked()) return false;
  Memory& memory = TheMemory();
  std::unique_lock<std::shared_mutex> lock(memory.live_mutex);
  const uintptr_t address = reinterpret_cast<uintptr_t>(opaque);
  auto it = memory.live.upper_bound(address);
  if (it == memory.live.begin()) return false;
  --it;
  return std::exchange(it->second.fresh, false) && it->first == address &&
         it->second.length == length;
}

MemoryStatistics GetMemoryStatistics(Device& device) {
  std::unique_lock<std::mutex> lock(device.memory_mutex, std::defer_lock);
  if (!Forked()) lock.lock();
  return device.memory;
}

}  // namespace metal_device
