// Heaps, and other state of buffers: purgeable states, markers.
#include "tests/hostmetal/harness.h"

using harness::Device;

namespace {

id<MTLHeap> Heap(NSUInteger size, MTLHeapType type, MTLStorageMode mode = MTLStorageModeShared) {
  MTLHeapDescriptor* descriptor = [[[MTLHeapDescriptor alloc] init] autorelease];
  CHECK_EQ(descriptor.storageMode, MTLStorageModePrivate);
  descriptor.size = size;
  descriptor.type = type;
  descriptor.storageMode = mode;
  return [[Device() newHeapWithDescriptor:descriptor] autorelease];
}

id<MTLBuffer> Of(id<MTLHeap> heap, NSUInteger length) {
  return [heap newBufferWithLength:length options:MTLResourceStorageModeShared];
}

}  // namespace

TEST(heap_hands_out_disjoint_room_and_takes_it_back) {
  NSUInteger before = Device().currentAllocatedSize;
  @autoreleasepool {
    id<MTLHeap> heap = Heap(4096, MTLHeapTypeAutomatic);
    CHECK_EQ(heap.size, NSUInteger(4096));
    CHECK(heap.device == Device());
    CHECK_EQ(heap.hazardTrackingMode, MTLHazardTrackingModeUntracked);
    CHECK(Device().currentAllocatedSize >= before + 4096);
    id<MTLBuffer> a = Of(heap, 1000), b = Of(heap, 1024), c = Of(heap, 2048);
    CHECK(a && b && c && a.heap == heap);
    CHECK_EQ(b.heapOffset, NSUInteger(1024));
    CHECK_EQ(c.heapOffset, NSUInteger(2048));
    CHECK_EQ(heap.usedSize, NSUInteger(4096));
    CHECK_EQ([heap maxAvailableSizeWithAlignment:256], NSUInteger(0));
    CHECK(Of(heap, 1) == nil);
    memset([b contents], 7, 1024);
    [a release];
    CHECK_EQ([heap maxAvailableSizeWithAlignment:256], NSUInteger(1024));
    // Its room is free as soon as it may be aliased, and is freed once.
    [c makeAliasable];
    CHECK(c.isAliasable && !b.isAliasable);
    id<MTLBuffer> d = Of(heap, 2048);
    CHECK_EQ(d.heapOffset, NSUInteger(2048));
    [c release];
    CHECK(Of(heap, 2048) == nil);
    CHECK_EQ(static_cast<char*>([b contents])[1023], 7);
    [b release];
    [d release];
    CHECK_EQ(heap.usedSize, NSUInteger(0));
    CHECK([heap newBufferWithLength:16 options:MTLResourceStorageModePrivate] == nil);
    CHECK([heap newBufferWithLength:16 options:0 offset:0] == nil);
  }
  CHECK_EQ(Device().currentAllocatedSize, before);
}

TEST(placement_heap_puts_buffers_where_asked) {
  id<MTLHeap> heap = Heap(1000, MTLHeapTypePlacement);
  CHECK_EQ(heap.size, NSUInteger(1024));
  id<MTLBuffer> a = [[heap newBufferWithLength:512 options:0 offset:512] autorelease];
  id<MTLBuffer> same = [[heap newBufferWithLength:256 options:0 offset:512] autorelease];
  CHECK([a contents] == [same contents]);
  CHECK([heap newBufferWithLength:513 options:0 offset:512] == nil);
  CHECK([heap newBufferWithLength:16 options:0 offset:8] == nil);
  CHECK(Of(heap, 16) == nil);
  CHECK(Heap(0, MTLHeapTypeAutomatic) == nil);
  MTLSizeAndAlign room = [Device() heapBufferSizeAndAlignWithLength:257 options:0];
  CHECK_EQ(room.size, NSUInteger(512));
  CHECK_EQ(room.align, NSUInteger(256));
}

TEST(kernels_run_on_buffers_of_a_heap) {
  id<MTLHeap> heap = Heap(1 << 16, MTLHeapTypeAutomatic);
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  id<MTLBuffer> buffers[3];
  for (auto& buffer : buffers) buffer = Of(heap, 1024 * sizeof(float));
  for (int i = 0; i < 1024; ++i) {
    harness::Contents<float>(buffers[0])[i] = float(i);
    harness::Contents<float>(buffers[1])[i] = 1;
  }
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder useHeap:heap];
  [encoder setComputePipelineState:harness::Pipeline("add")];
  for (NSUInteger b = 0; b < 3; ++b) [encoder setBuffer:buffers[b] offset:0 atIndex:b];
  [encoder dispatchThreads:harness::Size(1024) threadsPerThreadgroup:harness::Size(64)];
  [encoder endEncoding];
  // The command buffer keeps its buffers.
  id<MTLBuffer> result = [buffers[2] retain];
  for (auto& buffer : buffers) [buffer release];
  harness::Finish(commands);
  CHECK(commands.error == nil);
  CHECK_EQ(harness::Contents<float>(result)[1023], 1024.0f);
  [result release];
}

TEST(purgeable_states_and_markers) {
  id<MTLBuffer> buffer = harness::Buffer(64);
  CHECK_EQ([buffer setPurgeableState:MTLPurgeableStateKeepCurrent], MTLPurgeableStateNonVolatile);
  CHECK_EQ([buffer setPurgeableState:MTLPurgeableStateVolatile], MTLPurgeableStateNonVolatile);
  CHECK_EQ([buffer setPurgeableState:MTLPurgeableStateKeepCurrent], MTLPurgeableStateVolatile);
  CHECK_EQ([buffer setPurgeableState:MTLPurgeableStateNonVolatile], MTLPurgeableStateVolatile);
  CHECK(buffer.heap == nil && buffer.heapOffset == 0 && !buffer.isAliasable);
  [buffer addDebugMarker:@"weights" range:NSMakeRange(16, 32)];
  CHECK_CONTAINS(harness::Text([buffer description]), "'weights' {location=16, length=32}");
  [buffer removeAllDebugMarkers];
  CHECK(harness::Text([buffer description]).find("weights") == std::string::npos);
}

TEST(heaps_have_room_for_textures) {
  MTLTextureDescriptor* wanted =
      [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA8Unorm
                                                         width:10
                                                        height:10
                                                     mipmapped:YES];
  // Levels of 400, 100, 16 and 4 bytes, each at a multiple of 16.
  MTLSizeAndAlign room = [Device() heapTextureSizeAndAlignWithDescriptor:wanted];
  CHECK_EQ(room.size, NSUInteger(768));
  CHECK_EQ(room.align, NSUInteger(256));
  const NSUInteger before = Device().currentAllocatedSize;
  id<MTLHeap> heap = Heap(2048, MTLHeapTypeAutomatic);
  @autoreleasepool {
    id<MTLBuffer> buffer = [Of(heap, 512) autorelease];
    id<MTLTexture> texture = [[heap newTextureWithDescriptor:wanted] autorelease];
    CHECK(texture.heap == heap && texture.heapOffset == 512 && texture.allocatedSize == 768);
    CHECK_EQ(heap.usedSize, NSUInteger(1280));
    CHECK_EQ(texture.storageMode, MTLStorageModeShared);
    memset([buffer contents], 7, 512);
    const MTLRegion all = MTLRegionMake2D(0, 0, 10, 10);
    uint8_t pixels[400], got[400];
    for (int i = 0; i < 400; ++i) pixels[i] = uint8_t(i * 3);
    [texture replaceRegion:all mipmapLevel:0 withBytes:pixels bytesPerRow:40];
    [texture getBytes:got bytesPerRow:40 fromRegion:all mipmapLevel:0];
    CHECK(memcmp(pixels, got, 400) == 0);
    CHECK_EQ(static_cast<char*>([buffer contents])[511], 7);
    id<MTLTexture> second = [[heap newTextureWithDescriptor:wanted] autorelease];
    CHECK(second.heapOffset == 1280 && [heap newTextureWithDescriptor:wanted] == nil);
  }
  CHECK_EQ(heap.usedSize, NSUInteger(0));
  id<MTLTexture> aliased = [[heap newTextureWithDescriptor:wanted] autorelease];
  [aliased makeAliasable];
  CHECK(aliased.isAliasable && heap.usedSize == 0);
  CHECK_EQ(Device().currentAllocatedSize, before + 2048);
  CHECK([heap newTextureWithDescriptor:wanted offset:0] == nil);
  wanted.storageMode = MTLStorageModePrivate;
  CHECK([heap newTextureWithDescriptor:wanted] == nil);
  wanted.storageMode = MTLStorageModeShared;
  wanted.width = 100000;
  CHECK([heap newTextureWithDescriptor:wanted] == nil);
  CHECK([heap newTextureWithDescriptor:nil] == nil);
  CHECK_EQ([Device() heapTextureSizeAndAlignWithDescriptor:wanted].size, NSUInteger(0));
}

TEST(placement_heap_puts_textures_where_asked) {
  id<MTLHeap> heap = Heap(4096, MTLHeapTypePlacement, MTLStorageModePrivate);
  MTLTextureDescriptor* wanted =
      [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR8Unorm
                                                         width:16
                                                        height:16
                                                     mipmapped:NO];
  wanted.storageMode = MTLStorageModePrivate;
  id<MTLTexture> texture = [[heap newTextureWithDescriptor:wanted offset:1024] autorelease];
  CHECK(texture.heap == heap && texture.heapOffset == 1024);
  CHECK_EQ(texture.storageMode, MTLStorageModePrivate);
  id<MTLBuffer> same = [[heap newBufferWithLength:256
                                          options:MTLResourceStorageModePrivate
                                           offset:1024] autorelease];
  id<MTLBuffer> out = harness::Buffer(256);
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  [blit fillBuffer:same range:NSMakeRange(16, 16) value:9];
  [blit copyFromTexture:texture
                   sourceSlice:0
                   sourceLevel:0
                  sourceOrigin:MTLOriginMake(0, 0, 0)
                    sourceSize:MTLSizeMake(16, 16, 1)
                      toBuffer:out
             destinationOffset:0
        destinationBytesPerRow:16
      destinationBytesPerImage:256];
  [blit endEncoding];
  harness::Finish(commands);
  CHECK(commands.error == nil);
  CHECK_EQ(harness::Contents<uint8_t>(out)[15], 0);
  CHECK_EQ(harness::Contents<uint8_t>(out)[31], 9);
  CHECK([heap newTextureWithDescriptor:wanted offset:4000] == nil);
  CHECK([heap newTextureWithDescriptor:wanted] == nil);
}
