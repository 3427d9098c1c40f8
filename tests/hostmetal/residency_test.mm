// Residency sets: objects that a kernel reaches by addresses alone stay alive with their set.
#include "tests/hostmetal/harness.h"

using harness::Device;
using harness::Message;
using harness::Text;

namespace {

id<MTLResidencySet> NewSet() {
  MTLResidencySetDescriptor* descriptor = [[[MTLResidencySetDescriptor alloc] init] autorelease];
  descriptor.label = @"weights";
  descriptor.initialCapacity = 4;
  NSError* error = nil;
  id<MTLResidencySet> set = [Device() newResidencySetWithDescriptor:descriptor error:&error];
  CHECK_EQ(Message(error), "(nil)");
  return set;
}

// The used part of the device's memory.
NSUInteger InUse() { return Device().currentAllocatedSize; }

}  // namespace

TEST(residency_sets_count_what_they_hold) {
  id<MTLResidencySet> set = [NewSet() autorelease];
  CHECK_EQ(Text(set.label), "weights");
  CHECK(set.device == Device());
  id<MTLBuffer> a = harness::Buffer(1000), b = harness::Buffer(5000);
  MTLHeapDescriptor* descriptor = [[[MTLHeapDescriptor alloc] init] autorelease];
  descriptor.size = 4096;
  id<MTLHeap> heap = [[Device() newHeapWithDescriptor:descriptor] autorelease];
  CHECK(heap.allocatedSize >= 4096);
  id<MTLAllocation> two[] = {b, heap};
  [set addAllocation:a];
  [set addAllocation:a];
  [set addAllocations:two count:2];
  CHECK_EQ(set.allocationCount, 3u);
  CHECK_EQ(set.allocatedSize, 0u);  // not before commit
  [set commit];
  CHECK_EQ(set.allocatedSize, a.allocatedSize + b.allocatedSize + heap.allocatedSize);
  [set removeAllocations:two count:1];
  CHECK(![set containsAllocation:b] && [set containsAllocation:a]);
  CHECK_EQ(set.allAllocations.count, 2u);
  [set requestResidency];
  [set commit];
  CHECK_EQ(set.allocatedSize, a.allocatedSize + heap.allocatedSize);
  [set removeAllAllocations];
  [set endResidency];
  CHECK_EQ(set.allocationCount, 0u);
}

TEST(residency_sets_keep_what_they_hold) {
  const NSUInteger before = InUse();
  id<MTLResidencySet> set;
  id<MTLCommandQueue> queue = [Device() newCommandQueue];
  id<MTLBuffer> buffer;
  @autoreleasepool {
    set = NewSet();
    buffer = [Device() newBufferWithLength:1 << 20 options:MTLResourceStorageModeShared];
    [set addAllocation:buffer];
    [set commit];
    [queue addResidencySet:set];
    [buffer release];
    [set release];
  }
  CHECK(InUse() >= before + (1 << 20));  // the queue keeps the set
  @autoreleasepool {
    id<MTLSharedEvent> go = [[Device() newSharedEvent] autorelease];
    id<MTLCommandBuffer> commands = [queue commandBufferWithUnretainedReferences];
    [commands encodeWaitForEvent:go value:1];
    [commands useResidencySets:&set count:1];
    [commands commit];
    [set removeAllAllocations];
    [set commit];
    [queue removeResidencySet:set];
    CHECK(InUse() >= before + (1 << 20));  // the command buffer keeps the buffer
    go.signaledValue = 1;
    [commands waitUntilCompleted];
    CHECK(commands.error == nil);
  }
  CHECK_EQ(InUse(), before);
  [queue release];
}

TEST(residency_sets_of_nothing_are_errors) {
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  [commands useResidencySet:(id) @"no set"];
  harness::Finish(commands);
  CHECK_EQ([commands.error code], NSInteger(MTLCommandBufferErrorInvalidResource));
  CHECK_CONTAINS(Message(commands.error), "[useResidencySet] the set is nil or not of this device");
  [commands useResidencySet:nil];  // committed: said, and nothing else
}
