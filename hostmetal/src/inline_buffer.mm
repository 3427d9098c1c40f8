// Buffer objects in front of their own contents: see hostmetal_new_inline_buffer in hostmetal.h.
#include <objc/runtime.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "hostmetal/include/hostmetal.h"
#include "hostmetal/src/buffer.h"

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

// Addresses for an object whose contents lie elsewhere. All of them can be read, as slices are told
// from buffers by the bytes there; only the header is ever written, and takes memory.
constexpr size_t kSmall = size_t{64} << 10;

// Ranges of a power of two, kept for the next buffer: to give one back to the system stops every
// thread of the process for a moment.
struct KeptAddresses {
  static constexpr size_t kMost = 64;  // of a size
  std::mutex mutex;
  std::vector<void*> of_size[64];
};
KeptAddresses& Kept() {
  static auto* kept = new KeptAddresses;
  return *kept;
}

// The exponent of the range for so many bytes.
int RangeOf(size_t bytes) {
  int exponent = 16;
  while (exponent < 63 && (size_t{1} << exponent) < bytes) ++exponent;
  return exponent;
}

void* NewAddresses(size_t bytes) {
  if (bytes <= kSmall) return aligned_alloc(kHeader, (bytes + kHeader - 1) / kHeader * kHeader);
  const int exponent = RangeOf(bytes);
  {
    std::lock_guard<std::mutex> lock(Kept().mutex);
    std::vector<void*>& kept = Kept().of_size[exponent];
    if (!kept.empty()) {
      void* block = kept.back();
      kept.pop_back();
      return block;
    }
  }
  bytes = size_t{1} << exponent;
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  madvise(block, bytes, MADV_NOHUGEPAGE);  // or the header takes 2 MiB
  return block;
}

void FreeAddresses(void* block, size_t bytes) {
  if (bytes <= kSmall) {
    free(block);
    return;
  }
  const int exponent = RangeOf(bytes);
  {
    std::lock_guard<std::mutex> lock(Kept().mutex);
    std::vector<void*>& kept = Kept().of_size[exponent];
    if (kept.size() < KeptAddresses::kMost) return kept.push_back(block);
  }
  munmap(block, size_t{1} << exponent);
}

}  // namespace

@interface HMInlineBuffer : HMBuffer {
 @public
  hostmetal::Allocation _block;  // the object and its contents, or the contents alone
  BOOL _apart;
  HMBuffer* _whole;  // whose memory it is a part of, or nil
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
  const BOOL apart = _apart;
  const NSUInteger length = _length;
  HMBuffer* const whole = _whole;
  // The next object in this memory may be larger, and have a slice begin here.
  *Mark(self) = 0;
  if (whole) {
    FreeAddresses(self, kHeader + length);
    [whole release];
    return;
  }
  device->_allocated.fetch_sub(block.size, std::memory_order_relaxed);
  if (apart) FreeAddresses(self, kHeader + length);
  device->_driver->Free(block);
}
#pragma clang diagnostic pop

@end

namespace {

bool Fits() {
  static const bool fits =
      class_getInstanceSize([HMInlineBuffer class]) <= kHeader - sizeof(uintptr_t);
  return fits;
}

// The object alone, in a header's memory.
HMInlineBuffer* NewObject(void* address, HMDevice* device, NSUInteger length,
                          hostmetal_buffer_freed freed) {
  memset(address, 0, kHeader);  // as +alloc does
  auto* buffer = (HMInlineBuffer*)address;
  object_setClass(buffer, [HMInlineBuffer class]);
  buffer->_device = device;
  buffer->_length = length;
  buffer->_borrowed = YES;
  buffer->_freed = freed;
  *Mark(buffer) = MarkOf(buffer);
  return buffer;
}

}  // namespace

id<MTLBuffer> hostmetal_new_inline_buffer(id<MTLDevice> metal_device, NSUInteger length,
                                          hostmetal_buffer_freed freed) {
  auto* device = (HMDevice*)metal_device;
  uint64_t limit = device->_driver->info().memory_bytes;
  if (!Fits() || length > limit ||
      device->_allocated.load(std::memory_order_relaxed) > limit - length) {
    return nil;
  }
  // Memory of the device's own cannot hold an object.
  const bool apart = !device->_driver->info().unified_memory;
  const NSUInteger in_front = apart ? 0 : kHeader;
  hostmetal::Allocation block;
  const auto storage = apart ? hostmetal::Storage::kPrivate : hostmetal::Storage::kShared;
  if (!device->_driver->Allocate(in_front + length, /*zeroed=*/false, storage, &block)) return nil;
  void* address = apart ? NewAddresses(kHeader + length) : block.host;
  if (!address) {
    device->_driver->Free(block);
    return nil;
  }
  HMInlineBuffer* buffer = NewObject(address, device, length, freed);
  buffer->_allocation = {static_cast<char*>(block.device) + in_front,
                         apart ? nullptr : static_cast<char*>(block.host) + in_front,
                         block.size - in_front};
  buffer->_apart = apart;
  buffer->_options = apart ? MTLResourceStorageModePrivate : MTLResourceStorageModeShared;
  buffer->_block = block;
  device->_allocated.fetch_add(block.size, std::memory_order_relaxed);
  return buffer;
}

id<MTLBuffer> hostmetal_new_inline_part(id<MTLBuffer> of, NSUInteger offset, NSUInteger length,
                                        hostmetal_buffer_freed freed) {
  auto* whole = (HMBuffer*)of;
  if (!Fits() || offset > whole->_length || length > whole->_length - offset) return nil;
  void* address = NewAddresses(kHeader + length);
  if (!address) return nil;
  HMInlineBuffer* buffer = NewObject(address, whole->_device, length, freed);
  char* const host = static_cast<char*>(whole->_allocation.host);
  buffer->_allocation = {static_cast<char*>(whole->_allocation.device) + offset,
                         host ? host + offset : nullptr, length};
  buffer->_options = whole->_options;
  // A part of a part keeps the whole alone, or parts of parts would all stay.
  const bool of_part =
      object_getClass(whole) == [HMInlineBuffer class] && ((HMInlineBuffer*)whole)->_whole != nil;
  buffer->_whole = [(of_part ? ((HMInlineBuffer*)whole)->_whole : whole) retain];
  return buffer;
}

// A slice's bytes may be written by a shader meanwhile, and end within the word that is read; they
// are not taken for anything then.
__attribute__((no_sanitize("address", "thread"))) bool hostmetal_is_inline_buffer(
    const void* address) {
  static const Class buffer_class = [HMInlineBuffer class];
  // The first word first: it can be read whatever the address is, as it crosses no page.
  if (reinterpret_cast<uintptr_t>(address) % sizeof(uintptr_t) != 0) return false;
  if (*static_cast<const volatile Class*>(address) != buffer_class) return false;
  return *static_cast<const volatile uintptr_t*>(Mark(address)) == MarkOf(address);
}
