// HOSTMETAL_DEVICES=2: the processor as two devices, or two GPUs. Without it these cases look for one.
#include "hostmetal/include/hostmetal.h"
#include "tests/hostmetal/harness.h"

using harness::Append;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Text;

namespace {

// The other device; nil without HOSTMETAL_DEVICES=2.
id<MTLDevice> Other() {
  NSArray<id<MTLDevice>>* devices = [hostmetal_devices() autorelease];
  const char* wanted = getenv("HOSTMETAL_DEVICES");
  CHECK_EQ([devices count], static_cast<NSUInteger>(wanted ? atoi(wanted) : 1));
  CHECK([devices objectAtIndex:0] == Device());
  return [devices count] > 1 ? [devices lastObject] : nil;
}

id<MTLBuffer> BufferOf(id<MTLDevice> device, NSUInteger bytes) {
  return [[device newBufferWithLength:bytes options:MTLResourceStorageModeShared] autorelease];
}

id<MTLComputePipelineState> PipelineOf(id<MTLDevice> device, NSString* name) {
  id<MTLLibrary> library = [[device newLibraryWithFile:harness::LibraryPath()
                                                 error:nullptr] autorelease];
  id<MTLFunction> function = [[library newFunctionWithName:name] autorelease];
  return [[device newComputePipelineStateWithFunction:function error:nullptr] autorelease];
}

}  // namespace

TEST(devices_are_listed) {
  id<MTLDevice> other = Other();
  NSArray<id<MTLDevice>>* all = [MTLCopyAllDevices() autorelease];
  CHECK([all containsObject:Device()]);
  const bool processor = hostmetal_processor() == Device();
  CHECK_EQ(processor, static_cast<bool>(Device().hasUnifiedMemory));
  if (!other) return;
  CHECK([all containsObject:other]);
  CHECK(other.registryID != Device().registryID);
  CHECK_EQ(Text(other.name), Text(Device().name) + (processor ? " #1" : ""));
  CHECK_EQ(other.maxBufferLength,
           Device().maxBufferLength);  // each processor has half of the memory
}

TEST(devices_are_observed) {
  id<NSObject> observer = nil;
  __block int calls = 0;
  NSArray<id<MTLDevice>>* all =
      [MTLCopyAllDevicesWithObserver(&observer, ^(id<MTLDevice>, MTLDeviceNotificationName) {
        ++calls;
      }) autorelease];
  NSArray<id<MTLDevice>>* listed = [MTLCopyAllDevices() autorelease];
  CHECK([all isEqual:listed]);
  CHECK(observer != nil);
  MTLRemoveDeviceObserver(observer);
  CHECK_EQ(calls, 0);
  CHECK_EQ(Text(MTLDeviceWasAddedNotification), "MTLDeviceWasAddedNotification");
}

TEST(devices_count_their_own_memory) {
  id<MTLDevice> other = Other();
  if (!other) return;
  const NSUInteger before = Device().currentAllocatedSize;
  id<MTLBuffer> buffer = BufferOf(other, 1 << 20);
  CHECK_EQ(Device().currentAllocatedSize, before);
  CHECK(other.currentAllocatedSize >= 1u << 20);
  CHECK(buffer.device == other);
}

TEST(devices_share_memory_with_other_processes) {
  unsigned char name[64];
  uint64_t address = 0, again = 0;
  CHECK(!hostmetal_share_memory(0, 0, name, &address));
  CHECK(!hostmetal_share_memory(99, 4096, name, &address));
  CHECK(hostmetal_share_memory(0, 4096, name, &address));
  // A GPU's library opens memory of other processes alone.
  if (!Device().hasUnifiedMemory) return;
  CHECK(!hostmetal_open_memory(99, name, &again));
  CHECK(hostmetal_open_memory(0, name, &again));
  CHECK(again != address);
  memset(reinterpret_cast<void*>(address), 7, 4096);
  CHECK_EQ(int(reinterpret_cast<const uint8_t*>(again)[4095]), 7);
  memset(name, 0x7f, sizeof name);
  CHECK(!hostmetal_open_memory(0, name, &again));
}

TEST(devices_refuse_what_is_of_another) {
  id<MTLDevice> other = Other();
  if (!other) return;
  id<MTLBuffer> foreign = BufferOf(other, 256), own = harness::Buffer(256);
  NSError* error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:harness::Pipeline("append")];
    [encoder setBuffer:foreign offset:0 atIndex:0];
  });
  CHECK_CONTAINS(Message(error), "[setBuffer] the buffer is nil or not of this device");
  error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:PipelineOf(other, @"append")];
  });
  CHECK_CONTAINS(Message(error), "the pipeline is nil or not of this device");

  id<MTLCommandBuffer> copies = harness::Queue().commandBuffer;
  id<MTLBlitCommandEncoder> blit = copies.blitCommandEncoder;
  [blit copyFromBuffer:own sourceOffset:0 toBuffer:foreign destinationOffset:0 size:16];
  [blit endEncoding];
  harness::Finish(copies);
  CHECK_CONTAINS(Message(copies.error), "destination] the buffer is nil or not of this device");

  id<MTLCommandBuffer> waits = harness::Queue().commandBuffer;
  [waits encodeWaitForEvent:[[other newEvent] autorelease] value:1];
  harness::Finish(waits);
  CHECK_CONTAINS(Message(waits.error), "the event is nil or not of this device");

  id<MTLTexture> texture =
      [[other newTextureWithDescriptor:[MTLTextureDescriptor
                                           texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                                        width:4
                                                                       height:4
                                                                    mipmapped:NO]] autorelease];
  error = harness::Run(
      [&](id<MTLComputeCommandEncoder> encoder) { [encoder setTexture:texture atIndex:0]; });
  CHECK_CONTAINS(Message(error), "the texture must be of this device");

  id<MTLFunction> function = [[harness::Library() newFunctionWithName:@"append"] autorelease];
  CHECK([other newComputePipelineStateWithFunction:function error:&error] == nil);
  CHECK_CONTAINS(Message(error), "the function is nil or not of this device");
}

TEST(devices_take_turns_by_a_shared_event) {
  id<MTLDevice> other = Other();
  if (!other) return;
  id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
  // One memory, seen by both.
  void* pages = nullptr;
  CHECK(posix_memalign(&pages, 65536, 65536) == 0);
  memset(pages, 0, 65536);
  @autoreleasepool {
    id<MTLDevice> devices[2] = {Device(), other};
    id<MTLCommandQueue> queues[2];
    id<MTLBuffer> logs[2];
    id<MTLComputePipelineState> appends[2];
    for (int i = 0; i < 2; ++i) {
      queues[i] = [[devices[i] newCommandQueue] autorelease];
      logs[i] = [[devices[i] newBufferWithBytesNoCopy:pages
                                               length:65536
                                              options:MTLResourceStorageModeShared
                                          deallocator:nil] autorelease];
      appends[i] = PipelineOf(devices[i], @"append");
    }
    id<MTLCommandBuffer> last = nil;
    for (uint32_t i = 0; i < 40; ++i) {
      last = queues[i % 2].commandBuffer;
      [last encodeWaitForEvent:event value:i];
      Append(last, appends[i % 2], logs[i % 2], i);
      [last encodeSignalEvent:event value:i + 1];
      [last commit];
    }
    [last waitUntilCompleted];
    CHECK(last.error == nil);
  }
  const auto* log = static_cast<const uint32_t*>(pages);
  CHECK_EQ(log[0], 40u);
  for (uint32_t i = 0; i < 40; ++i) CHECK_EQ(log[1 + i], i);
  free(pages);
}
