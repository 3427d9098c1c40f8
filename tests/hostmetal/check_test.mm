// HOSTMETAL_CHECK: what kernels do wrong is the command buffer's error. test_hostmetal.py runs these cases with all checks;
// tests/msl/test_checks.py has the faults.
#include <stdlib.h>

#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Queue;
using harness::Size;

namespace {

bool Checking() { return getenv("HOSTMETAL_CHECK") != nullptr; }

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "kernel void turn(device float* x [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {\n"
     "  threadgroup float s[64];\n"
     "  s[t] = x[t];\n"
     "  x[t] = s[63 - t];\n"
     "}\n"
     "kernel void add(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],\n"
     "                uint i [[thread_position_in_grid]]) {\n"
     "  y[i] = x[63 - i] + 1;\n"
     "}\n";

id<MTLComputePipelineState> PipelineOf(NSString* name) {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> function = [[library newFunctionWithName:name] autorelease];
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  return state;
}

void Add(id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> from, id<MTLBuffer> to) {
  [encoder setBuffer:from offset:0 atIndex:0];
  [encoder setBuffer:to offset:0 atIndex:1];
  [encoder dispatchThreads:Size(64) threadsPerThreadgroup:Size(64)];
}

std::string Run(id<MTLCommandBuffer> commands) {
  [commands commit];
  [commands waitUntilCompleted];
  return Message(commands.error);
}

}  // namespace

TEST(check_names_a_race) {
  if (!Checking()) return;
  for (int i = 0; i < 2; ++i) {
    id<MTLCommandBuffer> commands = Queue().commandBuffer;
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:PipelineOf(@"turn")];
    Add(encoder, Buffer(256), Buffer(256));
    [encoder endEncoding];
    const std::string said = Run(commands);
    CHECK_CONTAINS(said, "[turn] race: ");
    CHECK_CONTAINS(said, " at program_source:5, ");
    CHECK_CONTAINS(said, "call threadgroup_barrier(mem_flags::mem_threadgroup) between them");
  }
}

TEST(check_leaves_right_kernels_alone) {
  if (!Checking()) return;
  id<MTLBuffer> from = Buffer(256), to = Buffer(256);
  Contents<float>(from)[63] = 2;
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:PipelineOf(@"add")];
  Add(encoder, from, to);
  Add(encoder, to, from);
  [encoder endEncoding];
  CHECK_EQ(Run(commands), "(nil)");
  CHECK_EQ(Contents<float>(to)[0], 3.0f);
  CHECK_EQ(Contents<float>(from)[63], 4.0f);
}

TEST(check_sees_dispatches_that_overlap) {
  if (!Checking()) return;
  for (bool ordered : {false, true}) {
    id<MTLBuffer> a = Buffer(256), b = Buffer(256), c = Buffer(256);
    id<MTLCommandBuffer> commands = Queue().commandBuffer;
    id<MTLComputeCommandEncoder> encoder =
        [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    [encoder setComputePipelineState:PipelineOf(@"add")];
    Add(encoder, a, b);
    if (ordered) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
    Add(encoder, b, c);
    [encoder endEncoding];
    const std::string said = Run(commands);
    if (ordered) {
      CHECK_EQ(said, "(nil)");
    } else {
      CHECK_CONTAINS(said, "call memoryBarrierWithScope: between the dispatches");
    }
  }
}

TEST(check_sees_private_memory_that_nothing_filled) {
  if (!Checking()) return;
  for (bool filled : {false, true}) {
    id<MTLBuffer> from = [[Device() newBufferWithLength:256
                                                options:MTLResourceStorageModePrivate] autorelease];
    id<MTLBuffer> between =
        [[Device() newBufferWithLength:256 options:MTLResourceStorageModePrivate] autorelease];
    id<MTLCommandBuffer> commands = Queue().commandBuffer;
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit fillBuffer:from range:NSMakeRange(0, filled ? 256 : 100) value:1];
    [blit endEncoding];
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:PipelineOf(@"add")];
    Add(encoder, from, between);
    Add(encoder, between, Buffer(256));  // which the kernel before has written
    [encoder endEncoding];
    const std::string said = Run(commands);
    if (filled) {
      CHECK_EQ(said, "(nil)");
    } else {
      CHECK_CONTAINS(said, "[add] init: read of 4 bytes at offset 252 (index 63) of buffer(0) 'x'");
      CHECK_CONTAINS(said, "a private buffer in which nothing has been written there");
    }
  }
}

TEST(check_finds_accesses_out_of_range) {
  if (!Checking()) return;
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:PipelineOf(@"add")];
  Add(encoder, Buffer(256), Buffer(128));
  [encoder endEncoding];
  CHECK_CONTAINS(Run(commands), "of buffer(1) 'y', which has 128 bytes, by thread (32, 0, 0)");
  CHECK_CONTAINS(Message(commands.error), "at program_source:10");
}
