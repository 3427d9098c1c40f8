// Buffer objects in front of their own contents: see hostmetal_new_inline_buffer in hostmetal.h.
#include <objc/runtime.h>
#include <string.h>

#include "hostmetal/include/hostmetal.h"
#include "hostmetal/src/internal.h"

namespace {

constexpr NSUInteger kHeader = 256;  // for the object; contents are aligned to it too

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
  device->_allocated.fetch_sub(block.size, std::memory_order_relaxed);
  device->_driver->Free(block);
}
#pragma clang diagnostic pop

@end

id<MTLBuffer> hostmetal_new_inline_buffer(id<MTLDevice> metal_device, NSUInteger length,
                                          hostmetal_buffer_freed freed) {
  auto* device = (HMDevice*)metal_device;
  static const bool fits = class_getInstanceSize([HMInlineBuffer class]) <= kHeader;
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
  buffer->_freed = freed;
  device->_allocated.fetch_add(block.size, std::memory_order_relaxed);
  return buffer;
}
