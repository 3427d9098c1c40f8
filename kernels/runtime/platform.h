// The differences between macOS (Metal.framework, tensorflow-metal) and Linux (hostmetal,
// libmetal_device.so). The only place under kernels/ that may ask which platform it is on.

#ifndef METAL_OPS_KERNELS_RUNTIME_PLATFORM_H_
#define METAL_OPS_KERNELS_RUNTIME_PLATFORM_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/runtime/status.h"

namespace metal_ops {

// TensorFlow's opaque device pointer -> id<MTLBuffer> and the offset in it.
Status ResolveOpaque(const void* opaque, void** buffer, uint64_t* offset);

// The device's error of work that failed after its kernel had returned. Where every op is waited
// for (METAL_DEVICE_WRAPPER_TYPE=1) that is this kernel's own. OK where the device does not tell.
Status DeviceFailure(const void* stream);

// The profiler's hooks that the device wants to be told by; nullptr for a device that has no
// profiler.
struct ProfilerHooks;
const ProfilerHooks* DeviceProfiler();

// Whether the threads of a threadgroup really run at once, so that they gain by sharing their
// reads. Where a processor plays their parts one after the other, each barrier is a change of
// actor.
bool ThreadgroupsRunAtOnce();
// Whether a threadgroup can know that others see its writes. Metal promises that from macOS 15 on,
// in shaders that macOS 14 does not run.
bool FencesReachDevice();
// Whether the device has memory of its own: a GPU beside the processor.
bool IsDiscrete();

// Whether shaders run on a processor whose vectors have 512 bits, of which there are 32.
bool WideVectors();

// The processor as a Metal device (an id<MTLDevice>), where there is one. `what` names the caller
// in the error, which should say what to do elsewhere.
Status ProcessorDevice(const char* what, void** device);

// A new buffer object over memory of the program, of any alignment. The memory has to stay until
// the buffer is released.
void* NewBufferOver(void* processor, void* memory, uint64_t bytes);

// Options (MTLResourceOptions) of memory that a shader writes and the host reads once. On Linux
// hostmetal keeps such memory with the host, whose pages a GPU's work would take away otherwise.
uint64_t ReadBackOptions();

// The devices that are TensorFlow's GPUs, the default one first: an NSArray, to be released.
void* NewDevices();

// Memory of one tensor. TensorFlow holds `address` and adds to it to name a slice: for every k <
// bytes, address + k belongs to this buffer (an id<MTLBuffer>) and to no other. `freed` is called
// once nothing holds the buffer any more, neither TensorFlow nor a command buffer, and before the
// memory goes. Null if there is none left.
using TensorMemoryFreed = void (*)(void* address, size_t bytes);
void* NewTensorMemory(void* device, uint64_t bytes, TensorMemoryFreed freed, void** address);
// A part of it as memory of a tensor of its own, without a copy, and an address that is as above. The result retains
// the whole, and is to be released; null with an address where that lies in the whole buffer's, which has to be kept
// then. Null, and no address, if there is none.
void* NewTensorPart(void* buffer, uint64_t offset, uint64_t bytes, TensorMemoryFreed freed,
                    void** address);
// Where its bytes lie, for a device that sees the host's memory.
void* TensorContents(void* buffer);
// Whether the address is that of a buffer itself, which saves a search.
bool IsTensorBuffer(const void* address);
// For `freed`: memory that is used after its end then reads NaN.
void ScribbleOver(void* address, uint64_t bytes);

// Bytes between such a buffer and the host, now: work on it has been waited for. False where the
// device refuses.
bool ReadTensorMemory(void* buffer, uint64_t offset, void* to, uint64_t bytes);
bool WriteTensorMemory(void* buffer, uint64_t offset, const void* from, uint64_t bytes);

// The path of the shared object that this code was linked into.
Status LibraryPath(std::string* path);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_PLATFORM_H_
