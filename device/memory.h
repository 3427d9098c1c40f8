// Device memory: buffers that TensorFlow may point into.
//
// TensorFlow holds device memory as one opaque pointer, hands it to kernels as it is, and does
// arithmetic on it to name a slice of a tensor: pointer + k has to belong to this buffer and no
// other for every k < length. On Linux it is the id<MTLBuffer>, which kernels written for
// tensorflow-metal expect: hostmetal's inline buffers lie in front of their own contents. On macOS
// it is the address of the contents, and kernels ask metal_device_resolve().

#ifndef METAL_OPS_DEVICE_MEMORY_H_
#define METAL_OPS_DEVICE_MEMORY_H_

#import <Metal/Metal.h>

#include <cstdint>

namespace metal_device {

struct MemoryStatistics {
  int64_t allocations = 0;  // ever made
  int64_t in_use = 0;       // bytes, including abandoned ones
  int64_t abandoned = 0;    // bytes of buffers that only command buffers still hold
  int64_t peak_in_use = 0;
  int64_t largest = 0;
  int64_t limit = 0;
};

// Sets the device that buffers belong to and how many bytes may be in use. Called once, before
// anything else here.
void InitMemory(id<MTLDevice> device, int64_t limit);

// The pointer of a buffer with one reference, which is what TensorFlow owns; null if the limit or
// the system's memory is reached.
void* NewBuffer(uint64_t length);
// Gives that reference back.
void AbandonBuffer(void* opaque);

// Pointer into device memory -> the buffer it lies in and how far. False if it lies in none.
bool Resolve(const void* opaque, id<MTLBuffer>* buffer, uint64_t* offset);

MemoryStatistics GetMemoryStatistics();

// The device of InitMemory.
id<MTLDevice> TheDevice();

// Whether the host's memory is the device's.
bool HasUnifiedMemory();

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_MEMORY_H_
