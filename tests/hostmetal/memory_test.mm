// Objects that are made and released give their memory back. The allocator counts, so that the
// classes that HMObject does not count are seen too; under the sanitizers it says 0 at all times.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>

#include "tests/hostmetal/harness.h"

using harness::Device;
using harness::Library;

namespace {

constexpr int kTurns = 500;
// The smallest object takes 32 bytes; less for each turn is a table that grew once.
constexpr long kFew = 16;

void Turns(void (*body)()) {
  for (int i = 0; i < kTurns; ++i) {
    @autoreleasepool {
      body();
    }
  }
}

// Bytes that the allocator has given out, and those of the process that lie in memory.
struct Memory {
  size_t used = mallinfo2().uordblks, resident = 0;
  Memory() {
    // Under the sanitizers, which keep freed memory for a while, the count means nothing.
    if (used == 0) return;
    FILE* file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*u %zu", &resident) == 1) resident *= size_t(sysconf(_SC_PAGESIZE));
    if (file) fclose(file);
  }
};

// Bytes that stay in use for each round, once the objects that are made only once are there. Queue
// threads let go of commands a moment after their waiters have woken, so that a few rounds are
// waited for.
long Kept(void (*body)()) {
  Turns(body);
  const Memory before;
  for (int round = 1;; ++round) {
    Turns(body);
    usleep(1000 << round);
    const Memory after;
    const long used = (long(after.used) - long(before.used)) / (round * kTurns);
    // The allocator takes pages ahead, but not one for each turn.
    const long resident = (long(after.resident) - long(before.resident)) / (round * kTurns);
    const long kept = std::max(used, resident < 4096 ? 0 : resident);
    if (kept < kFew || round == 8) return kept;
  }
}

id<MTLFunction> Function(NSString* name) {
  return [[Library() newFunctionWithName:name] autorelease];
}

void Reflection() {
  MTLComputePipelineReflection* reflection = nil;
  [[Device() newComputePipelineStateWithFunction:Function(@"describe")
                                         options:MTLPipelineOptionArgumentInfo
                                      reflection:&reflection
                                           error:nullptr] autorelease];
  CHECK_EQ([reflection.arguments count], NSUInteger(3));
}

void PipelineDescriptor() {
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  descriptor.label = @"a label";
  descriptor.computeFunction = Function(@"add");
  [descriptor.buffers objectAtIndexedSubscript:2].mutability = MTLMutabilityImmutable;
  CHECK([[descriptor copy] autorelease] != nil);
  [descriptor reset];
}

void Buffer() { CHECK([[Device() newBufferWithLength:100 options:0] autorelease] != nil); }

void TextureAndSampler() {
  MTLTextureDescriptor* texture =
      [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                         width:4
                                                        height:4
                                                     mipmapped:NO];
  CHECK([[Device() newTextureWithDescriptor:texture] autorelease] != nil);
  MTLSamplerDescriptor* sampler = [[[MTLSamplerDescriptor alloc] init] autorelease];
  CHECK([[Device() newSamplerStateWithDescriptor:sampler] autorelease] != nil);
}

void Heap() {
  MTLHeapDescriptor* descriptor = [[[MTLHeapDescriptor alloc] init] autorelease];
  descriptor.size = 4096;
  descriptor.storageMode = MTLStorageModeShared;
  CHECK([[Device() newHeapWithDescriptor:descriptor] autorelease] != nil);
}

void Events() {
  CHECK([[Device() newEvent] autorelease] != nil);
  CHECK([[Device() newSharedEvent] autorelease] != nil);
  CHECK([[Device() newFence] autorelease] != nil);
}

// One for all turns: its threads have stacks.
id<MTLCommandQueue> queue;

void Commands() {
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  commands.label = @"a label";
  id<MTLBuffer> buffer = harness::Buffer(64);
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  [blit fillBuffer:buffer range:NSMakeRange(0, 16) value:1];
  [blit endEncoding];
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:harness::Pipeline("describe")];
  [encoder setBuffer:buffer offset:0 atIndex:0];
  [encoder setThreadgroupMemoryLength:4096 atIndex:0];
  [encoder setThreadgroupMemoryLength:128 atIndex:1];
  [encoder dispatchThreadgroups:harness::Size(1) threadsPerThreadgroup:harness::Size(8)];
  [encoder endEncoding];
  harness::Finish(commands);
  CHECK(commands.error == nil);
}

constexpr struct {
  const char* name;
  void (*make)();
} kObjects[] = {
    {"a pipeline with its reflection", Reflection},
    {"a pipeline's descriptor", PipelineDescriptor},
    {"a buffer", Buffer},
    {"a texture and a sampler", TextureAndSampler},
    {"a heap", Heap},
    {"events and a fence", Events},
    {"a command buffer", Commands},
};

}  // namespace

TEST(objects_give_their_memory_back) {
  queue = [Device() newCommandQueue];
  for (const auto& object : kObjects) {
    const long kept = Kept(object.make);
    if (kept >= kFew) {
      harness::Fail(__FILE__, __LINE__,
                    std::string(object.name) + " keeps " + std::to_string(kept) + " bytes");
    }
  }
  [queue release];
}
