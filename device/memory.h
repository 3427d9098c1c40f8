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

#include "device/device.h"

namespace metal_device {

// Reads the environment. Called once, before anything else here.
void InitMemory();

// The pointer of a buffer with one reference, which TensorFlow owns; null if the device's limit or
// the system's memory is reached.
void* NewBuffer(Device& device, uint64_t length);
// Gives that reference back.
void AbandonBuffer(Device& device, void* opaque);

// The pointer of a part of the memory that `opaque` points to, without a copy: to be given back, and before that memory
// is. Null if there can be none; a copy is the way then.
void* NewPart(const void* opaque, uint64_t offset, uint64_t length);
void AbandonPart(void* opaque);

// Pointer into the memory of any device -> the buffer it lies in and how far. False if it lies in
// none.
bool Resolve(const void* opaque, id<MTLBuffer>* buffer, uint64_t* offset);

// To be told of every copy into a buffer and every fill. True for the first one, if it is of all
// `length` bytes: then nothing but kernels that were given the buffer can use it.
bool TakeFresh(const void* opaque, uint64_t length);

MemoryStatistics GetMemoryStatistics(Device& device);

}  // namespace metal_device

#endif  // METAL_OPS_DEVICE_MEMORY_H_
