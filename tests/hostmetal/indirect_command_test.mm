// Indirect command buffers: dispatches that are encoded once and executed as often as asked.
#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Size;

namespace {

constexpr MTLIndirectCommandType kBoth =
    MTLIndirectCommandTypeConcurrentDispatch | MTLIndirectCommandTypeConcurrentDispatchThreads;

id<MTLComputePipelineState> Pipeline(NSString* name) {
  auto* wanted = [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  wanted.computeFunction = [[harness::Library() newFunctionWithName:name] autorelease];
  wanted.supportIndirectCommandBuffers = YES;
  NSError* error = nil;
  id<MTLComputePipelineState> made =
      [Device() newComputePipelineStateWithDescriptor:[[wanted copy] autorelease]
                                              options:MTLPipelineOptionNone
                                           reflection:nullptr
                                                error:&error];
  CHECK(made != nil && made.supportIndirectCommandBuffers);
  return [made autorelease];
}

MTLIndirectCommandBufferDescriptor* Wanted(MTLIndirectCommandType types = kBoth) {
  auto* wanted = [[[MTLIndirectCommandBufferDescriptor alloc] init] autorelease];
  wanted.commandTypes = types;
  return wanted;
}

id<MTLIndirectCommandBuffer> Made(NSUInteger count,
                                  MTLIndirectCommandBufferDescriptor* wanted = Wanted()) {
  return [[Device() newIndirectCommandBufferWithDescriptor:wanted maxCommandCount:count
                                                   options:0] autorelease];
}

id<MTLBuffer> Value(uint32_t value) {
  id<MTLBuffer> buffer = Buffer(4);
  Contents<uint32_t>(buffer)[0] = value;
  return buffer;
}

// Command `index` appends `value` to the log, after those before it.
void Append(id<MTLIndirectCommandBuffer> all, NSUInteger index, id<MTLBuffer> log, uint32_t value) {
  id<MTLIndirectComputeCommand> command = [all indirectComputeCommandAtIndex:index];
  [command setComputePipelineState:Pipeline(@"append")];
  [command setKernelBuffer:log offset:0 atIndex:0];
  [command setKernelBuffer:Value(value) offset:0 atIndex:1];
  [command concurrentDispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  [command setBarrier];
}

NSError* Execute(id<MTLIndirectCommandBuffer> all, NSRange range) {
  return harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder executeCommandsInBuffer:all withRange:range];
  });
}

std::vector<uint32_t> Logged(id<MTLBuffer> log) {
  const uint32_t* words = Contents<uint32_t>(log);
  return {words + 1, words + 1 + words[0]};
}

}  // namespace

TEST(indirect_commands_run_as_often_as_asked) {
  id<MTLIndirectCommandBuffer> all = Made(5);
  CHECK_EQ(all.size, NSUInteger(5));
  CHECK(all.device == Device() && all.heap == nil && !all.isAliasable && all.allocatedSize > 0);
  CHECK_EQ(all.storageMode, MTLStorageModeShared);
  id<MTLBuffer> log = Buffer(4096);
  @autoreleasepool {  // a command keeps the objects it names
    for (uint32_t i = 0; i < 5; ++i) {
      if (i != 2) Append(all, i, log, 10 + i);  // one is left empty
    }
  }
  CHECK(Execute(all, NSMakeRange(0, 5)) == nil);
  CHECK(Execute(all, NSMakeRange(1, 3)) == nil);
  CHECK(Execute(all, NSMakeRange(5, 0)) == nil);
  CHECK(Logged(log) == std::vector<uint32_t>({10, 11, 13, 14, 11, 13}));
}

TEST(indirect_grids_in_threads_and_in_threadgroups) {
  id<MTLIndirectCommandBuffer> all = Made(3);
  id<MTLBuffer> out[3] = {Buffer(400), Buffer(400), Buffer(400)};
  for (NSUInteger i = 0; i < 3; ++i) {
    id<MTLIndirectComputeCommand> command = [all indirectComputeCommandAtIndex:i];
    [command setComputePipelineState:Pipeline(@"increment")];
    [command setKernelBuffer:out[i] offset:4 * i atIndex:0];
    [command setKernelBuffer:Value(uint32_t(7 + i)) offset:0 atIndex:1];
    if (i == 0) [command concurrentDispatchThreads:Size(33) threadsPerThreadgroup:Size(16)];
    if (i == 1) [command concurrentDispatchThreadgroups:Size(3) threadsPerThreadgroup:Size(16)];
    if (i == 2) [command concurrentDispatchThreads:Size(33, 0) threadsPerThreadgroup:Size(16)];
    [command setStageInRegion:MTLRegionMake2D(0, 0, 1, 1)];
    [command setBarrier];
    [command clearBarrier];
  }
  CHECK(Execute(all, NSMakeRange(0, 3)) == nil);
  for (uint32_t j = 0; j < 100; ++j) {
    CHECK_EQ(Contents<uint32_t>(out[0])[j], j < 33 ? 7u : 0u);
    CHECK_EQ(Contents<uint32_t>(out[1])[j], j >= 1 && j < 49 ? 8u : 0u);
    CHECK_EQ(Contents<uint32_t>(out[2])[j], 0u);
  }
}

TEST(indirect_barriers_hold_commands_back) {
  id<MTLIndirectCommandBuffer> all = Made(2);
  id<MTLBuffer> marks = Buffer(4 * 64), missing = Buffer(4 * 64);
  id<MTLIndirectComputeCommand> first = [all indirectComputeCommandAtIndex:0];
  [first setComputePipelineState:Pipeline(@"slow_mark")];
  [first setKernelBuffer:marks offset:0 atIndex:0];
  [first concurrentDispatchThreadgroups:Size(64) threadsPerThreadgroup:Size(1)];
  id<MTLIndirectComputeCommand> second = [all indirectComputeCommandAtIndex:1];
  [second setComputePipelineState:Pipeline(@"check_marks")];
  [second setKernelBuffer:marks offset:0 atIndex:0];
  [second setKernelBuffer:missing offset:0 atIndex:1];
  [second concurrentDispatchThreadgroups:Size(64) threadsPerThreadgroup:Size(1)];
  [second setBarrier];
  CHECK(Execute(all, NSMakeRange(0, 2)) == nil);
  for (int i = 0; i < 64; ++i) CHECK_EQ(Contents<uint32_t>(missing)[i], 0u);
}

TEST(indirect_commands_inherit_what_the_encoder_has) {
  auto* wanted = Wanted();
  wanted.inheritPipelineState = wanted.inheritBuffers = YES;
  id<MTLIndirectCommandBuffer> all = Made(2, [[wanted copy] autorelease]);
  for (NSUInteger i = 0; i < 2; ++i) {
    id<MTLIndirectComputeCommand> command = [all indirectComputeCommandAtIndex:i];
    [command concurrentDispatchThreads:Size(10 + i) threadsPerThreadgroup:Size(8)];
    [command setBarrier];
  }
  id<MTLBuffer> out = Buffer(64);
  NSError* error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:Pipeline(@"increment")];
    [encoder setBuffer:out offset:0 atIndex:0];
    for (uint32_t amount : {1u, 20u}) {
      [encoder setBytes:&amount length:4 atIndex:1];
      [encoder executeCommandsInBuffer:all withRange:NSMakeRange(0, 2)];
    }
    // Later settings are not inherited.
    [encoder setBuffer:nil offset:0 atIndex:0];
  });
  CHECK(error == nil);
  for (uint32_t i = 0; i < 16; ++i) {
    CHECK_EQ(Contents<uint32_t>(out)[i], i < 10 ? 42u : i < 11 ? 21u : 0u);
  }
  [[all indirectComputeCommandAtIndex:0] setComputePipelineState:Pipeline(@"increment")];
  [[all indirectComputeCommandAtIndex:1] setKernelBuffer:out offset:0 atIndex:0];
  CHECK_CONTAINS(Message(Execute(all, NSMakeRange(0, 1))), "made with inheritPipelineState");
  CHECK_CONTAINS(Message(Execute(all, NSMakeRange(1, 1))), "made with inheritBuffers");
}

TEST(indirect_commands_are_copied_and_reset_in_order) {
  id<MTLIndirectCommandBuffer> all = Made(4), other = Made(4);
  id<MTLBuffer> log = Buffer(4096);
  for (uint32_t i = 0; i < 4; ++i) Append(all, i, log, i);
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  auto execute = [&](id<MTLIndirectCommandBuffer> what) {
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder executeCommandsInBuffer:what withRange:NSMakeRange(0, 4)];
    [encoder endEncoding];
  };
  execute(other);  // nothing yet
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  [blit copyIndirectCommandBuffer:all
                      sourceRange:NSMakeRange(1, 2)
                      destination:other
                 destinationIndex:2];
  [blit resetCommandsInBuffer:all withRange:NSMakeRange(0, 3)];
  [blit optimizeIndirectCommandBuffer:other withRange:NSMakeRange(0, 4)];
  [blit endEncoding];
  execute(other);
  execute(all);
  harness::Finish(commands);
  CHECK(commands.error == nil);
  CHECK(Logged(log) == std::vector<uint32_t>({1, 2, 3}));
  // A copy is another command.
  commands = harness::Queue().commandBuffer;
  blit = commands.blitCommandEncoder;
  [blit copyIndirectCommandBuffer:all
                      sourceRange:NSMakeRange(3, 1)
                      destination:other
                 destinationIndex:0];
  [blit endEncoding];
  harness::Finish(commands);
  Append(all, 3, log, 33);
  CHECK(Execute(other, NSMakeRange(0, 1)) == nil);
  CHECK(Logged(log) == std::vector<uint32_t>({1, 2, 3, 3}));
  [other resetWithRange:NSMakeRange(0, 1)];
  [other resetWithRange:NSMakeRange(2, 1)];
  [[other indirectComputeCommandAtIndex:3] reset];
  CHECK(Execute(other, NSMakeRange(0, 4)) == nil);
  CHECK_EQ(Contents<uint32_t>(log)[0], 4u);
}

TEST(indirect_commands_are_those_of_the_time_they_run) {
  id<MTLIndirectCommandBuffer> all = Made(3);
  id<MTLBuffer> log = Buffer(4096), range = Buffer(16);
  Append(all, 0, log, 5);
  id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  [commands encodeWaitForEvent:event value:1];
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder executeCommandsInBuffer:all withRange:NSMakeRange(0, 1)];
  [encoder executeCommandsInBuffer:all indirectBuffer:range indirectBufferOffset:8];
  [encoder endEncoding];
  [commands commit];
  Append(all, 0, log, 6);
  Append(all, 1, log, 7);
  Append(all, 2, log, 8);
  Contents<MTLIndirectCommandBufferExecutionRange>(range)[1] = {1, 2};
  event.signaledValue = 1;
  [commands waitUntilCompleted];
  CHECK(commands.error == nil);
  CHECK(Logged(log) == std::vector<uint32_t>({6, 7, 8}));
}

TEST(indirect_buffers_that_are_not_to_be_had) {
  CHECK(Made(0) == nil && Made(16385) == nil && Made(16384) != nil);
  CHECK(Made(1, nil) == nil && Made(1, Wanted(0)) == nil);
  CHECK(Made(1, Wanted(MTLIndirectCommandTypeDraw)) == nil);
  auto* wanted = Wanted();
  CHECK_EQ(wanted.maxKernelBufferBindCount, NSUInteger(31));
  wanted.maxKernelBufferBindCount = 32;
  CHECK(Made(1, wanted) == nil);
  CHECK([Made(1) indirectComputeCommandAtIndex:1] == nil);
  CHECK(!harness::Pipeline("add").supportIndirectCommandBuffers);
}

TEST(indirect_commands_say_what_is_wrong) {
  id<MTLBuffer> log = Buffer(64);
  struct {
    void (*encode)(id<MTLIndirectComputeCommand>, id<MTLBuffer>);
    const char* said;
  } cases[] = {
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) {
         [c setComputePipelineState:harness::Pipeline("append")];
       },
       "kernel 'append': its pipeline was made without supportIndirectCommandBuffers"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) { [c setComputePipelineState:nil]; },
       "the pipeline is nil or not of this device"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer> log) {
         [c setKernelBuffer:log offset:0 atIndex:2];
       },
       "[setKernelBuffer] index 2; maxKernelBufferBindCount is 2"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer> log) {
         [c setKernelBuffer:log offset:65 atIndex:1];
       },
       "shorter than the offset 65"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) {
         [c setThreadgroupMemoryLength:16 atIndex:31];
       },
       "31 indices (maxKernelThreadgroupMemoryBindCount)"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) {
         [c concurrentDispatchThreadgroups:Size(1) threadsPerThreadgroup:Size(1)];
       },
       "[concurrentDispatchThreadgroups] the buffer's commandTypes are 64, without 32"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) {
         [c concurrentDispatchThreads:Size(1) threadsPerThreadgroup:Size(2000)];
       },
       "a threadgroup of 2000 x 1 x 1 threads"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) {
         [c concurrentDispatchThreads:Size(1ull << 32) threadsPerThreadgroup:Size(1)];
       },
       "4294967296 threads in one dimension"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) {
         [c reset];
         [c setComputePipelineState:Pipeline(@"append")];
         [c concurrentDispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
       },
       "kernel 'append': buffer(0) 'log' is not bound"},
      {[](id<MTLIndirectComputeCommand> c, id<MTLBuffer>) {
         [c reset];
         [c concurrentDispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
       },
       "no compute pipeline state is set"},
  };
  auto* wanted = Wanted(MTLIndirectCommandTypeConcurrentDispatchThreads);
  wanted.maxKernelBufferBindCount = 2;
  for (const auto& one : cases) {
    memset([log contents], 0, 64);
    id<MTLIndirectCommandBuffer> all = Made(2, wanted);
    Append(all, 0, log, 1);
    Append(all, 1, log, 2);
    one.encode([all indirectComputeCommandAtIndex:1], log);
    const std::string said = Message(Execute(all, NSMakeRange(0, 2)));
    CHECK_CONTAINS(said, "[executeCommandsInBuffer] command 1: ");
    CHECK_CONTAINS(said, one.said);
    CHECK_EQ(Contents<uint32_t>(log)[0], 1u);  // the commands before have run
    [all resetWithRange:NSMakeRange(1, 1)];
    CHECK(Execute(all, NSMakeRange(0, 2)) == nil);
  }
  id<MTLIndirectCommandBuffer> all = Made(2), other = Made(2, wanted);
  CHECK_CONTAINS(Message(Execute(all, NSMakeRange(1, 2))),
                 "commands 1 to 3 of an indirect command buffer of 2");
  CHECK_CONTAINS(Message(Execute(nil, NSMakeRange(0, 1))), "is nil or not of this device");
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  [blit copyIndirectCommandBuffer:all
                      sourceRange:NSMakeRange(0, 2)
                      destination:other
                 destinationIndex:0];
  [blit endEncoding];
  harness::Finish(commands);
  CHECK_CONTAINS(Message(commands.error), "the two buffers' descriptors differ");
}
