// Device and buffers.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "hostmetal/include/hostmetal.h"
#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;

TEST(device_describes_itself) {
  id<MTLDevice> device = Device();
  CHECK_CONTAINS(harness::Text(device.name), "hostmetal");
  CHECK(device.registryID != 0);
  CHECK(device.hasUnifiedMemory);
  CHECK(device.isHeadless);
  CHECK(!device.isLowPower);
  CHECK(!device.isRemovable);
  CHECK_EQ(device.maxThreadsPerThreadgroup.width, NSUInteger(1024));
  CHECK_EQ(device.maxThreadgroupMemoryLength, NSUInteger(32768));
  CHECK(device.maxBufferLength > NSUInteger(1) << 28);
  CHECK(device.recommendedMaxWorkingSetSize > uint64_t(1) << 28);
  CHECK([device supportsFamily:MTLGPUFamilyApple7]);
  CHECK(![device supportsFamily:MTLGPUFamilyApple9]);
  NSArray* all = MTLCopyAllDevices();
  CHECK_EQ([all count], NSUInteger(1));
  CHECK([all objectAtIndex:0] == device);
  [all release];
  MTLTimestamp cpu = 0, gpu = 0;
  [device sampleTimestamps:&cpu gpuTimestamp:&gpu];
  CHECK(cpu != 0 && gpu != 0);
}

TEST(buffer_has_the_asked_properties) {
  id<MTLBuffer> shared = Buffer(1000);
  CHECK_EQ(shared.length, NSUInteger(1000));
  CHECK_EQ(shared.storageMode, MTLStorageModeShared);
  CHECK_EQ(shared.cpuCacheMode, MTLCPUCacheModeDefaultCache);
  CHECK_EQ(shared.hazardTrackingMode, MTLHazardTrackingModeTracked);
  CHECK(shared.allocatedSize >= 1000);
  CHECK(shared.device == Device());
  CHECK(shared.contents != nullptr);
  CHECK(shared.gpuAddress != 0);
  shared.label = @"weights";
  CHECK_EQ(harness::Text(shared.label), "weights");
  MTLResourceOptions options = MTLResourceStorageModePrivate |
                               MTLResourceCPUCacheModeWriteCombined |
                               MTLResourceHazardTrackingModeUntracked;
  id<MTLBuffer> hidden = [[Device() newBufferWithLength:64 options:options] autorelease];
  CHECK_EQ(hidden.storageMode, MTLStorageModePrivate);
  CHECK_EQ(hidden.cpuCacheMode, MTLCPUCacheModeWriteCombined);
  CHECK_EQ(hidden.hazardTrackingMode, MTLHazardTrackingModeUntracked);
  CHECK_EQ(hidden.resourceOptions, options);
  CHECK(hidden.contents == nullptr);
  CHECK(hostmetal_buffer_address(hidden) != nullptr);
}

TEST(buffer_of_bytes_copies_them) {
  float values[3] = {1, 2, 3};
  id<MTLBuffer> buffer = [[Device() newBufferWithBytes:values
                                                length:sizeof values
                                               options:MTLResourceStorageModeShared] autorelease];
  values[0] = 9;
  CHECK_EQ(Contents<float>(buffer)[0], 1.0f);
  CHECK_EQ(Contents<float>(buffer)[2], 3.0f);
  [buffer didModifyRange:NSMakeRange(0, 4)];
}

TEST(buffers_are_zeroed_also_when_recycled) {
  for (NSUInteger bytes : {100u, 4096u, 70000u, 5000000u}) {
    for (int round = 0; round < 3; ++round) {
      @autoreleasepool {
        id<MTLBuffer> buffer = Buffer(bytes);
        auto* data = Contents<unsigned char>(buffer);
        size_t set = 0;
        for (NSUInteger i = 0; i < bytes; ++i) set += data[i] != 0;
        CHECK_EQ(set, size_t(0));
        memset(data, 0xff, bytes);
      }
    }
  }
}

TEST(small_buffers_are_recycled) {
  void* first;
  @autoreleasepool {
    first = Buffer(4096).contents;
  }
  @autoreleasepool {
    CHECK(Buffer(4096).contents == first);
    CHECK(Buffer(4000).contents != first);
  }
}

TEST(buffers_are_aligned_and_disjoint) {
  std::set<std::pair<char*, char*>> ranges;
  for (int i = 0; i < 400; ++i) {
    NSUInteger bytes = NSUInteger(1 + i * i * 7 % 90000);
    char* data = Contents<char>(Buffer(bytes));
    CHECK_EQ(reinterpret_cast<uintptr_t>(data) % 256, uintptr_t(0));
    if (bytes > 2048) CHECK_EQ(reinterpret_cast<uintptr_t>(data) % 4096, uintptr_t(0));
    ranges.insert({data, data + bytes});
  }
  char* end = nullptr;
  for (const auto& range : ranges) {
    CHECK(range.first >= end);
    end = range.second;
  }
}

TEST(allocated_size_counts_live_buffers) {
  NSUInteger before = Device().currentAllocatedSize;
  @autoreleasepool {
    NSUInteger sum = 0;
    for (NSUInteger bytes : {1u, 4096u, 100000u, 9000000u}) sum += Buffer(bytes).allocatedSize;
    CHECK_EQ(Device().currentAllocatedSize, before + sum);
  }
  CHECK_EQ(Device().currentAllocatedSize, before);
}

TEST(impossible_buffers_are_nil) {
  CHECK([Device() newBufferWithLength:0 options:0] == nil);
  CHECK([Device() newBufferWithLength:Device().maxBufferLength + 1 options:0] == nil);
  CHECK([Device() newBufferWithLength:NSUIntegerMax options:0] == nil);
  CHECK([Device() newBufferWithBytes:"" length:0 options:0] == nil);
}

TEST(no_copy_buffer_uses_and_frees_the_callers_memory) {
  auto page = NSUInteger(getpagesize());
  void* memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  __block void* freed = nullptr;
  __block NSUInteger freed_length = 0;
  @autoreleasepool {
    id<MTLBuffer> buffer = [[Device() newBufferWithBytesNoCopy:memory
                                                        length:2 * page
                                                       options:0
                                                   deallocator:^(void* p, NSUInteger length) {
                                                     freed = p;
                                                     freed_length = length;
                                                   }] autorelease];
    CHECK(buffer.contents == memory);
    CHECK(freed == nullptr);
  }
  CHECK(freed == memory);
  CHECK_EQ(freed_length, 2 * page);
  CHECK([Device() newBufferWithBytesNoCopy:(char*)memory + 16
                                    length:page
                                   options:0
                               deallocator:nil] == nil);
  CHECK([Device() newBufferWithBytesNoCopy:memory length:100 options:0 deallocator:nil] == nil);
  munmap(memory, 2 * page);
}

TEST(a_buffer_over_any_address) {
  uint32_t memory[5] = {7, 7, 7, 7, 7};
  id<MTLDevice> processor = hostmetal_processor();
  id<MTLBuffer> buffer = [hostmetal_new_buffer_over(processor, memory + 1, 12) autorelease];
  CHECK_EQ([buffer length], NSUInteger(12));
  CHECK([buffer contents] == memory + 1);
  id<MTLCommandQueue> queue = [[processor newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
  [blit fillBuffer:buffer range:NSMakeRange(0, 12) value:0];
  [blit endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK([commands error] == nil);
  const uint32_t expected[5] = {7, 0, 0, 0, 7};
  CHECK(memcmp(memory, expected, sizeof memory) == 0);
  CHECK(hostmetal_new_buffer_over(processor, nullptr, 12) == nil);
  CHECK(hostmetal_new_buffer_over(processor, memory, 0) == nil);
}
