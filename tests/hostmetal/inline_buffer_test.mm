// Buffers whose object lies in front of its contents: the device plugin's tensors.
#include "hostmetal/include/hostmetal.h"
#include "tests/hostmetal/harness.h"

using harness::Device;

namespace {
std::atomic<NSUInteger> freed_length{0};
void Freed(void*, NSUInteger length) { freed_length = length; }
}  // namespace

TEST(inline_buffer_is_a_buffer) {
  NSUInteger before = Device().currentAllocatedSize;
  id<MTLBuffer> buffer = hostmetal_new_inline_buffer(Device(), 1000, Freed);
  CHECK_EQ(buffer.length, NSUInteger(1000));
  CHECK_EQ(reinterpret_cast<uintptr_t>(buffer.contents) % 256, uintptr_t(0));
  CHECK(buffer.contents >= (char*)(void*)buffer);
  CHECK(Device().currentAllocatedSize > before);
  buffer.label = @"tensor";
  memset(buffer.contents, 0xff, 1000);
  CHECK_EQ(harness::Text(buffer.label), "tensor");
  @autoreleasepool {
    [[buffer retain] autorelease];
  }
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  [blit fillBuffer:buffer range:NSMakeRange(10, 10) value:3];
  [blit endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK_EQ(int(static_cast<unsigned char*>(buffer.contents)[19]), 3);
  CHECK_EQ(int(static_cast<unsigned char*>(buffer.contents)[20]), 0xff);
  CHECK_EQ(freed_length.load(), NSUInteger(0));
  [buffer release];
  CHECK_EQ(freed_length.load(), NSUInteger(1000));
  CHECK_EQ(Device().currentAllocatedSize, before);
}

TEST(inline_buffers_own_their_addresses) {
  std::vector<id<MTLBuffer>> buffers;
  for (NSUInteger i = 0; i < 200; ++i) {
    buffers.push_back(hostmetal_new_inline_buffer(Device(), 1 + i * 131 % 20000, nullptr));
  }
  int overlaps = 0;
  for (id<MTLBuffer> a : buffers) {
    auto* begin = (char*)(void*)a;
    for (id<MTLBuffer> b : buffers) {
      auto* other = (char*)(void*)b;
      overlaps += a != b && other >= begin && other < begin + a.length;
    }
  }
  CHECK_EQ(overlaps, 0);
  for (id<MTLBuffer> buffer : buffers) [buffer release];
  CHECK(hostmetal_new_inline_buffer(Device(), NSUIntegerMax / 2, nullptr) == nil);
}

TEST(inline_part_is_a_buffer_of_the_same_bytes) {
  const NSUInteger before = Device().currentAllocatedSize;
  for (const NSUInteger length : {NSUInteger(100), NSUInteger(200000)}) {
    freed_length = 0;
    id<MTLBuffer> whole = hostmetal_new_inline_buffer(Device(), 3 * length, nullptr);
    const NSUInteger taken = Device().currentAllocatedSize;
    id<MTLBuffer> part = hostmetal_new_inline_part(whole, length, 2 * length, Freed);
    CHECK_EQ(Device().currentAllocatedSize, taken);
    CHECK_EQ(part.length, 2 * length);
    CHECK(part.contents == (char*)whole.contents + length);
    CHECK(hostmetal_is_inline_buffer(part));
    CHECK(!hostmetal_is_inline_buffer((char*)(void*)part + 8));
    // Addresses in both that are shared with nothing else.
    auto *const a = (char*)(void*)whole, *const b = (char*)(void*)part;
    CHECK(b + part.length <= a || a + whole.length <= b);
    id<MTLBuffer> last = hostmetal_new_inline_part(part, length, length, nullptr);
    [whole release];
    [part release];
    CHECK_EQ(freed_length.load(), 2 * length);
    CHECK_EQ(Device().currentAllocatedSize, taken);
    const id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
    const id<MTLCommandBuffer> commands = queue.commandBuffer;
    const id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit fillBuffer:last range:NSMakeRange(0, length) value:7];
    [blit endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    CHECK_EQ(int(static_cast<unsigned char*>(last.contents)[length - 1]), 7);
    CHECK(hostmetal_new_inline_part(last, 1, length, nullptr) == nil);
    CHECK(hostmetal_new_inline_part(last, length + 1, 0, nullptr) == nil);
    [last release];
  }
  CHECK_EQ(Device().currentAllocatedSize, before);
}
