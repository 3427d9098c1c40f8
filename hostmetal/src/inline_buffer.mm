// Buffer objects in front of their own contents: see hostmetal_new_inline_buffer in hostmetal.h.
#include <objc/runtime.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hostmetal/include/hostmetal.h"
#include "hostmetal/src/internal.h"

namespace {

constexpr NSUInteger kHeader = 256;  // for the object; contents are aligned to it too

// The header's last word, by which a buffer is told from contents that look like one. It holds for
// one address of one process.
uintptr_t* Mark(const void* address) {
  return reinterpret_cast<uintptr_t*>(reinterpret_cast<uintptr_t>(address) + kHeader) - 1;
}

uintptr_t MarkOf(const void* address) {
  static const uintptr_t secret = [] {
    uintptr_t bits = 0;
    if (getentropy(&bits, sizeof(bits)) != 0) abort();
    return bits;
  }();
  return reinterpret_cast<uintptr_t>(address) ^ secret;
}

}  // namespace

@interface HMInlineBuffer : HMBuffer {
 @public
  hostmetal::Allocation _block;  // the object and its contents
  hostmetal_buffer_freed _freed;
}
@end

@implementation HMInlineBuffer

// NSObject's dealloc would hand the memory to free().
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wobjc-missing-super-calls"
- (void)dealloc {
  [_label release];
  if (_freed) _freed(self, _length);
  HMDevice* device = _device;
  hostmetal::Allocation block = _block;
  // What is made of this memory next may be larger, and have a slice begin here.
  *Mark(block.host) = 0;
  device->_allocated.fetch_sub(block.size, std::memory_order_relaxed);
  device->_driver->Free(block);
}
#pragma clang diagnostic pop

@end

id<MTLBuffer> hostmetal_new_inline_buffer(id<MTLDevice> metal_device, NSUInteger length,
                                          hostmetal_buffer_freed freed) {
  auto* device = (HMDevice*)metal_device;
  static const bool fits =
      class_getInstanceSize([HMInlineBuffer class]) <= kHeader - sizeof(uintptr_t);
  uint64_t limit = device->_driver->info().memory_bytes;
  if (!fits || length > limit ||
      device->_allocated.load(std::memory_order_relaxed) > limit - length) {
    return nil;
  }
  hostmetal::Allocation block;
  if (!device->_driver->Allocate(kHeader + length, /*zeroed=*/false, hostmetal::Storage::kShared,
                                 &block))
    return nil;
  memset(block.host, 0, kHeader);  // as +alloc does
  auto* buffer = (HMInlineBuffer*)block.host;
  object_setClass(buffer, [HMInlineBuffer class]);
  buffer->_device = device;
  buffer->_allocation = {static_cast<char*>(block.device) + kHeader,
                         static_cast<char*>(block.host) + kHeader, block.size - kHeader};
  buffer->_length = length;
  buffer->_options = MTLResourceStorageModeShared;
  buffer->_borrowed = YES;
  buffer->_block = block;
  *Mark(buffer) = MarkOf(buffer);
  buffer->_freed = freed;
  device->_allocated.fetch_add(block.size, std::memory_order_relaxed);
  return buffer;
}

// A slice's bytes may be written by a shader meanwhile; they are not taken for anything then.
__attribute__((no_sanitize("thread"))) bool hostmetal_is_inline_buffer(const void* address) {
  static const Class buffer_class = [HMInlineBuffer class];
  // The first word first: it can be read whatever the address is, as it crosses no page.
  if (reinterpret_cast<uintptr_t>(address) % sizeof(uintptr_t) != 0) return false;
  if (*static_cast<const volatile Class*>(address) != buffer_class) return false;
  return *static_cast<const volatile uintptr_t*>(Mark(address)) == MarkOf(address);
}
