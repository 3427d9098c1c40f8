// The SP_StreamExecutor table's copies and fills: see executor.h.

#import <Foundation/Foundation.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "device/callback.h"
#include "device/executor.h"
#include "device/fork.h"
#include "device/memory.h"
#include "device/profiler.h"
#include "device/stream.h"
#include "kernels/runtime/platform.h"
#include "tensorflow/c/tf_status.h"

namespace metal_device {
namespace {

// False, and a status, if work failed whose results this copy may be about to hand out.
bool CheckError(Device& device, TF_Status* status) {
  Reap(&device);
  std::string message;
  if (!PeekError(device, &message)) return true;
  TF_SetStatus(status, TF_INTERNAL, DescribeFailure(message).c_str());
  return false;
}

ProfiledPass Pass(PassKind kind, const char* name, uint64_t bytes) {
  ProfiledPass pass;
  pass.kind = kind;
  pass.name = name;
  pass.bytes = bytes;
  return pass;
}

struct Place {
  id<MTLBuffer> buffer = nil;
  uint64_t offset = 0;
  bool fresh = false;  // of a target: TakeFresh()
};

// Bytes between a place and the host, now: work on the place has been waited for.
void Read(const Place& from, void* to, uint64_t size, TF_Status* status) {
  const HostScope copies(static_cast<uint32_t>(EventKind::kToHost), "copy to the host", size);
  if (!metal_ops::ReadTensorMemory(from.buffer, from.offset, to, size)) {
    TF_SetStatus(status, TF_INTERNAL, "METAL device: the device refused a copy to the host");
  }
}

void Write(const Place& to, const void* from, uint64_t size, TF_Status* status) {
  const HostScope copies(static_cast<uint32_t>(PassKind::kToDevice), "copy from the host", size);
  if (!metal_ops::WriteTensorMemory(to.buffer, to.offset, from, size)) {
    TF_SetStatus(status, TF_INTERNAL, "METAL device: the device refused a copy from the host");
  }
}

bool Find(const SP_DeviceMemoryBase* memory, uint64_t size, const char* what, Place* place,
          TF_Status* status) {
  if (Resolve(memory->opaque, &place->buffer, &place->offset) &&
      place->offset + size <= [place->buffer length]) {
    return true;
  }
  char message[200];
  snprintf(message, sizeof(message),
           "METAL device: %s: %llu bytes at %p do not lie in one buffer of the device", what,
           static_cast<unsigned long long>(size), memory->opaque);
  TF_SetStatus(status, TF_INTERNAL, message);
  return false;
}

// The target of a copy or fill.
bool FindTarget(const SP_DeviceMemoryBase* memory, uint64_t size, const char* what, Place* place,
                TF_Status* status) {
  if (!Find(memory, size, what, place, status)) return false;
  place->fresh = TakeFresh(memory->opaque, size);
  return true;
}

// Waits, so that it can say whether the copy's source is there. CUDA also waits when the host's
// memory is pageable.
void MemcpyDeviceToHost(const SP_Device* device, SP_Stream stream, void* target,
                        const SP_DeviceMemoryBase* source, uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    [ToStream(stream) flush];
    [ToStream(stream) waitUntilIdle];
    Place from;
    if (!CheckError(ToDevice(device), status) ||
        !Find(source, size, "copy to the host", &from, status))
      return;
    Read(from, target, size, status);
  });
}

// Host memory for the device to read: the memory itself where both see it, else a copy, as it would
// have to be pinned. Metal wants whole pages, so the buffer starts up to a page before `source`.
id<MTLBuffer> WrapHost(id<MTLDevice> device, const void* source, uint64_t size, uint64_t* offset) {
  if (![device hasUnifiedMemory]) {
    *offset = 0;
    return [[device newBufferWithBytes:source
                                length:size
                               options:MTLResourceStorageModeShared |
                                       MTLResourceCPUCacheModeWriteCombined] autorelease];
  }
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t address = reinterpret_cast<uintptr_t>(source);
  *offset = address % page;
  const uint64_t length = (*offset + size + page - 1) / page * page;
  return [[device newBufferWithBytesNoCopy:reinterpret_cast<void*>(address - *offset)
                                    length:length
                                   options:MTLResourceStorageModeShared
                               deallocator:nil] autorelease];
}

// TensorFlow keeps `source` alive until an event after the copy has happened.
void MemcpyHostToDevice(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target,
                        const void* source, uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    Place to;
    if (!CheckFork(status) || !FindTarget(target, size, "copy from the host", &to, status)) return;
    // Most copies find an idle stream: a plain copy is done before a command buffer would have
    // started. TensorFlow has its stream of copies wait for that of kernels, as other allocators
    // give memory back that kernels still read. Here a command buffer keeps the memory it uses, so
    // new memory is shared with nothing else, and the next batch is copied while the present one is
    // trained on.
    const bool fresh = to.fresh && [ToStream(stream) onlyWaits];
    if (!fresh && ![ToStream(stream) isIdle]) {
      uint64_t offset = 0;
      id<MTLBuffer> from = WrapHost((id<MTLDevice>)device->device_handle, source, size, &offset);
      if (from != nil) {
        [ToStream(stream) encode:Pass(PassKind::kToDevice, "copy from the host", size)
                            blit:[&](id<MTLBlitCommandEncoder> blit) {
                              [blit copyFromBuffer:from
                                       sourceOffset:offset
                                           toBuffer:to.buffer
                                  destinationOffset:to.offset
                                               size:size];
                            }];
        return;
      }
      [ToStream(stream) flush];
      [ToStream(stream) waitUntilIdle];
    }
    Write(to, source, size, status);
  });
}

// From the memory of the stream's device to another's. The work that the copy waits for has its
// failures reported by then, so that they become the other device's, too.
void CopyBetween(Stream* stream, const Place& from, const Place& to, uint64_t size) {
  Device* const sender = [stream device];
  Device* const receiver = &DeviceOf([to.buffer device]);
  id<MTLBuffer> const target = to.buffer;
  const uint64_t target_offset = to.offset;
  // Memory that both see is the sender's too. Else the bytes go by the host.
  const bool shared = sender->has_unified_memory && receiver->has_unified_memory;
  uint64_t offset = 0;
  id<MTLBuffer> const between =
      shared ? WrapHost(sender->metal,
                        static_cast<char*>(metal_ops::TensorContents(target)) + target_offset, size,
                        &offset)
             : [[sender->metal newBufferWithLength:size
                                           options:MTLResourceStorageModeShared] autorelease];
  if (between == nil) throw std::bad_alloc();
  [stream encode:Pass(PassKind::kCopy, "copy to another device", size)
            blit:[&](id<MTLBlitCommandEncoder> blit) {
              [blit copyFromBuffer:from.buffer
                       sourceOffset:from.offset
                           toBuffer:between
                  destinationOffset:offset
                               size:size];
            }];
  [target retain];
  [between retain];
  [stream runOnHost:[=] {
    std::string message;
    if (PeekError(*sender, &message)) {
      ReportError(*receiver, "it was given what another device made: " + message);
    } else if (!shared &&
               !metal_ops::WriteTensorMemory(target, target_offset, [between contents], size)) {
      ReportError(*receiver, "it refused a copy from another device");
    }
    [between release];
    [target release];
  }];
}

void MemcpyDeviceToDevice(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target,
                          const SP_DeviceMemoryBase* source, uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    Place from, to;
    if (!CheckFork(status) || !Find(source, size, "copy on the device, source", &from, status) ||
        !FindTarget(target, size, "copy on the device, target", &to, status)) {
      return;
    }
    if (size > 0 && [from.buffer device] != [to.buffer device]) {
      CopyBetween(ToStream(stream), from, to, size);
      return;
    }
    [ToStream(stream) encode:Pass(PassKind::kCopy, "copy", size)
                        blit:[&](id<MTLBlitCommandEncoder> blit) {
                          [blit copyFromBuffer:from.buffer
                                   sourceOffset:from.offset
                                       toBuffer:to.buffer
                              destinationOffset:to.offset
                                           size:size];
                        }];
  });
}

void SyncMemcpyDeviceToHost(const SP_Device* device, void* target,
                            const SP_DeviceMemoryBase* source, uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    Synchronize(&ToDevice(device));
    Place from;
    if (!CheckError(ToDevice(device), status) ||
        !Find(source, size, "copy to the host", &from, status))
      return;
    Read(from, target, size, status);
  });
}

void SyncMemcpyHostToDevice(const SP_Device* device, SP_DeviceMemoryBase* target,
                            const void* source, uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    Synchronize(&ToDevice(device));
    Place to;
    if (!CheckFork(status) || !FindTarget(target, size, "copy from the host", &to, status)) return;
    Write(to, source, size, status);
  });
}

void SyncMemcpyDeviceToDevice(const SP_Device* device, SP_DeviceMemoryBase* target,
                              const SP_DeviceMemoryBase* source, uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    SynchronizeAll();  // two of them, maybe
    Place from, to;
    if (!CheckError(ToDevice(device), status) ||
        !Find(source, size, "copy on the device, source", &from, status) ||
        !FindTarget(target, size, "copy on the device, target", &to, status)) {
      return;
    }
    std::vector<char> bytes(size);
    Read(from, bytes.data(), size, status);
    Write(to, bytes.data(), size, status);
  });
}

void Memset(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target, uint8_t pattern,
            uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    Place to;
    if (!CheckFork(status) || !FindTarget(target, size, "memset", &to, status)) return;
    [ToStream(stream) encode:Pass(PassKind::kFill, "fill", size)
                        blit:[&](id<MTLBlitCommandEncoder> blit) {
                          [blit fillBuffer:to.buffer
                                     range:NSMakeRange(to.offset, size)
                                     value:pattern];
                        }];
  });
}

void MemZero(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target, uint64_t size,
             TF_Status* status) {
  Memset(device, stream, target, 0, size, status);
}

void Memset32(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* target,
              uint32_t pattern, uint64_t size, TF_Status* status) {
  Guarded(device, status, [&] {
    if (size % sizeof(pattern) != 0) {
      TF_SetStatus(status, TF_INVALID_ARGUMENT,
                   "METAL device: memset32 of a size that 4 does not divide");
      return;
    }
    Place to;
    if (size == 0 || !CheckFork(status) || !FindTarget(target, size, "memset32", &to, status))
      return;
    // Metal fills with bytes only: write the pattern once, then copy the written part, doubling
    // each time.
    id<MTLBuffer> word = [[(id<MTLDevice>)device->device_handle
        newBufferWithBytes:&pattern
                    length:sizeof(pattern)
                   options:MTLResourceStorageModeShared] autorelease];
    [ToStream(stream) encode:Pass(PassKind::kFill, "fill", size)
                        blit:[&](id<MTLBlitCommandEncoder> blit) {
                          [blit copyFromBuffer:word
                                   sourceOffset:0
                                       toBuffer:to.buffer
                              destinationOffset:to.offset
                                           size:4];
                          for (uint64_t done = 4; done < size; done *= 2) {
                            [blit copyFromBuffer:to.buffer
                                     sourceOffset:to.offset
                                         toBuffer:to.buffer
                                destinationOffset:to.offset + done
                                             size:std::min(done, size - done)];
                          }
                        }];
  });
}

}  // namespace

void FillCopies(SP_StreamExecutor* executor) {
  executor->memcpy_dtoh = MemcpyDeviceToHost;
  executor->memcpy_htod = MemcpyHostToDevice;
  executor->memcpy_dtod = MemcpyDeviceToDevice;
  executor->sync_memcpy_dtoh = SyncMemcpyDeviceToHost;
  executor->sync_memcpy_htod = SyncMemcpyHostToDevice;
  executor->sync_memcpy_dtod = SyncMemcpyDeviceToDevice;
  executor->mem_zero = MemZero;
  executor->memset = Memset;
  executor->memset32 = Memset32;
}

}  // namespace metal_device
