// HOSTMETAL_TIMEOUT: kernels that do not end are ended. test_hostmetal.py runs these cases with half a
// second.
#include <stdlib.h>

#include "tests/hostmetal/harness.h"

using harness::Append;
using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Finish;
using harness::Message;
using harness::Pipeline;
using harness::Queue;
using harness::Size;
using harness::Text;

namespace {

// ThreadSanitizer holds signals back until a thread calls it, and a kernel never does.
bool Timed() {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return false;
#endif
#endif
  return getenv("HOSTMETAL_TIMEOUT") != nullptr;
}

void Dispatch(id<MTLCommandBuffer> commands, id<MTLComputePipelineState> pipeline,
              id<MTLBuffer> buffer, NSUInteger groups, NSUInteger threads = 1) {
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  encoder.label = @"endless";
  [encoder insertDebugSignpost:@"before it"];
  [encoder setComputePipelineState:pipeline];
  [encoder setBuffer:buffer offset:0 atIndex:0];
  [encoder dispatchThreadgroups:Size(groups) threadsPerThreadgroup:Size(threads)];
  [encoder endEncoding];
}

id<MTLComputePipelineState> PipelineOf(id<MTLLibrary> library, NSString* name) {
  NSError* error = nil;
  id<MTLFunction> function = [[library newFunctionWithName:name] autorelease];
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  return state;
}

}  // namespace

TEST(timeout_fails_its_command_buffer_alone) {
  if (!Timed()) return;
  id<MTLCommandQueue> queue = Queue(), other = Queue();
  id<MTLBuffer> flag = Buffer(64), log = Buffer(64), elsewhere = Buffer(64);
  MTLCommandBufferDescriptor* descriptor = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
  descriptor.errorOptions = MTLCommandBufferErrorOptionEncoderExecutionStatus;
  id<MTLCommandBuffer> endless = [queue commandBufferWithDescriptor:descriptor];
  Append(endless, Pipeline("append"), log, 1);
  Dispatch(endless, Pipeline("wait_flag"), flag, 1);
  Append(endless, Pipeline("append"), log, 2);
  id<MTLCommandBuffer> next = queue.commandBuffer, meanwhile = other.commandBuffer;
  Append(next, Pipeline("append"), log, 3);
  Append(meanwhile, Pipeline("append"), elsewhere, 4);
  [endless commit];
  [next commit];
  Finish(meanwhile);
  CHECK(meanwhile.error == nil);
  [endless waitUntilCompleted];
  [next waitUntilCompleted];
  CHECK_EQ(Contents<uint32_t>(flag)[1], 0u);  // it did not give up by itself
  CHECK_EQ(endless.status, MTLCommandBufferStatusError);
  NSError* error = endless.error;
  CHECK_EQ(Text([error domain]), Text(MTLCommandBufferErrorDomain));
  CHECK_EQ([error code], NSInteger(MTLCommandBufferErrorTimeout));
  CHECK_CONTAINS(Message(error), "[wait_flag] did not end within 0.5 s, the time that "
                                 "HOSTMETAL_TIMEOUT gives a dispatch");
  NSArray* infos = [[error userInfo] objectForKey:MTLCommandBufferEncoderInfoErrorKey];
  CHECK_EQ([infos count], NSUInteger(3));
  const MTLCommandEncoderErrorState states[] = {MTLCommandEncoderErrorStateCompleted,
                                                MTLCommandEncoderErrorStateFaulted,
                                                MTLCommandEncoderErrorStatePending};
  for (NSUInteger i = 0; i < [infos count]; ++i) {
    id<MTLCommandBufferEncoderInfo> info = [infos objectAtIndex:i];
    CHECK_EQ(info.errorState, states[i]);
  }
  id<MTLCommandBufferEncoderInfo> info = [infos objectAtIndex:1];
  CHECK_EQ(Text(info.label), "endless");
  CHECK_EQ(Text([info.debugSignposts componentsJoinedByString:@", "]), "before it");
  CHECK(next.error == nil);
  CHECK_EQ(Contents<uint32_t>(log)[0], 2u);
  CHECK_EQ(Contents<uint32_t>(log)[2], 3u);
}

TEST(timeout_ends_every_thread) {
  if (!Timed()) return;
  id<MTLBuffer> flag = Buffer(64), marks = Buffer(4 * 64);
  for (int turn = 0; turn < 2; ++turn) {
    id<MTLCommandBuffer> endless = Queue().commandBuffer;
    Dispatch(endless, Pipeline("wait_flag"), flag, 1000);
    Finish(endless);
    CHECK_EQ([endless.error code], NSInteger(MTLCommandBufferErrorTimeout));
  }
  id<MTLCommandBuffer> next = Queue().commandBuffer;
  Dispatch(next, Pipeline("slow_mark"), marks, 64);
  Finish(next);
  CHECK(next.error == nil);
  for (int i = 0; i < 64; ++i) CHECK_EQ(Contents<uint32_t>(marks)[i], 1u);
}

TEST(timeout_ends_fibers_and_lanes) {
  if (!Timed()) return;
  NSError* error = nil;
  id<MTLLibrary> library = [[Device()
      newLibraryWithSource:
          @"#include <metal_stdlib>\n"
           "using namespace metal;\n"
           "kernel void meet(device atomic_uint* flag, uint i [[thread_index_in_threadgroup]]) {\n"
           "  threadgroup uint seen[256];\n"
           "  seen[i] = 0;\n"
           "  while (!seen[255 - i]) {\n"
           "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
           "    seen[i] = atomic_load_explicit(flag, memory_order_relaxed);\n"
           "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
           "  }\n"
           "}\n"
           "kernel void vote(device atomic_uint* flag) {\n"
           "  while (!simd_any(atomic_load_explicit(flag, memory_order_relaxed) != 0)) {}\n"
           "}\n"
           "kernel void total(device uint* x, uint i [[thread_position_in_grid]]) {\n"
           "  x[i] = simd_sum(1);\n"
           "}\n"
                   options:nil
                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  for (NSString *name in [NSArray arrayWithObjects:@"meet", @"vote", nil]) {
    id<MTLCommandBuffer> endless = Queue().commandBuffer;
    Dispatch(endless, PipelineOf(library, name), Buffer(64), 8, 256);
    Finish(endless);
    CHECK_EQ([endless.error code], NSInteger(MTLCommandBufferErrorTimeout));
    CHECK_CONTAINS(Message(endless.error), "[" + Text(name) + "] did not end");
  }
  id<MTLBuffer> sums = Buffer(4 * 2048);
  id<MTLCommandBuffer> next = Queue().commandBuffer;
  Dispatch(next, PipelineOf(library, @"total"), sums, 8, 256);
  Finish(next);
  CHECK(next.error == nil);
  for (int i = 0; i < 2048; ++i) CHECK_EQ(Contents<uint32_t>(sums)[i], 32u);
}

TEST(timeout_leaves_what_ends_alone) {
  if (!Timed()) return;
  uint32_t us = 2000;
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:Pipeline("spin")];
  [encoder setBytes:&us length:4 atIndex:0];
  // Longer than a dispatch may be, all together.
  for (int i = 0; i < 300; ++i) {
    [encoder dispatchThreadgroups:Size(1) threadsPerThreadgroup:Size(1)];
  }
  [encoder endEncoding];
  Finish(commands);
  CHECK(commands.error == nil);
}
