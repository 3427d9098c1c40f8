// Misuse and faults: errors of the command buffer, never an abort.
#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Finish;
using harness::Message;
using harness::Pipeline;
using harness::Queue;
using harness::Run;
using harness::Size;

TEST(encoding_errors_become_command_buffer_errors) {
  id<MTLBuffer> out = Buffer(4096);
  uint32_t one = 1;
  struct Case {
    const char* part;
    NSInteger code;
    void (^encode)(id<MTLComputeCommandEncoder>);
  } cases[] = {{"no compute pipeline state", MTLCommandBufferErrorInvalidResource,
                ^(id<MTLComputeCommandEncoder> e){
                    [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
}
}
, {"the pipeline is nil", MTLCommandBufferErrorInvalidResource,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:nil];
}
}
, {"buffer(0) 'out' is not bound", MTLCommandBufferErrorInvalidResource,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("grid")];
[e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
}
}
, {"buffer(1) 'amount' is not bound", MTLCommandBufferErrorInvalidResource,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("increment")];
[e setBytes:&one length:4 atIndex:1];
[e setBuffer:nil offset:0 atIndex:1];
[e setBuffer:out offset:0 atIndex:0];
[e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
}
}
, {"[setBuffer] index 31; the highest is 30", MTLCommandBufferErrorInvalidResource,
   ^(id<MTLComputeCommandEncoder> e){
       [e setBuffer:out offset:0 atIndex:31];
}
}
, {"of a buffer of 4096 bytes", MTLCommandBufferErrorInvalidResource,
   ^(id<MTLComputeCommandEncoder> e){
       [e setBuffer:out offset:4097 atIndex:0];
}
}
, {"no buffer is bound at index 4", MTLCommandBufferErrorInvalidResource,
   ^(id<MTLComputeCommandEncoder> e){
       [e setBufferOffset:4 atIndex:4];
}
}
, {"[setBytes] 5000 bytes at index 2", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e setBytes:out.contents length:5000 atIndex:2];
}
}
, {"[setThreadgroupMemoryLength] 40000 bytes", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e setThreadgroupMemoryLength:40000 atIndex:0];
}
}
, {"bytes of threadgroup memory; the limit is 32768", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("describe")];
[e setBuffer:out offset:0 atIndex:0];
[e setThreadgroupMemoryLength:20000 atIndex:0];
[e setThreadgroupMemoryLength:20000 atIndex:1];
[e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
}
}
, {"a threadgroup of 2048 x 1 x 1 threads; 1 to 1024", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("noop")];
[e dispatchThreads:Size(1) threadsPerThreadgroup:Size(2048)];
}
}
, {"a threadgroup of 16 x 17 x 1 threads; 1 to 256", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("describe")];
[e dispatchThreadgroups:Size(1) threadsPerThreadgroup:Size(16, 17)];
}
}
, {"a threadgroup of 0 x 1 x 1 threads", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("noop")];
[e dispatchThreads:Size(1) threadsPerThreadgroup:Size(0)];
}
}
, {"threads in one dimension; the limit is 4294967295", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("noop")];
[e dispatchThreadgroups:Size(NSUInteger(1) << 40) threadsPerThreadgroup:Size(1024)];
}
}
, {"offset 2 is not a multiple of 4", MTLCommandBufferErrorInternal,
   ^(id<MTLComputeCommandEncoder> e){
       [e dispatchThreadgroupsWithIndirectBuffer:out
                            indirectBufferOffset:2
                           threadsPerThreadgroup:Size(1)];
}
}
, {"bytes 4088 to 4100 of a buffer of 4096", MTLCommandBufferErrorInvalidResource,
   ^(id<MTLComputeCommandEncoder> e){
       [e setComputePipelineState:Pipeline("noop")];
[e dispatchThreadgroupsWithIndirectBuffer:out
                     indirectBufferOffset:4088
                    threadsPerThreadgroup:Size(1)];
}
}
,
}
;
for (const Case& c : cases) {
  NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) { c.encode(encoder); });
  CHECK_EQ([error code], c.code);
  CHECK_CONTAINS(Message(error), c.part);
}
}

TEST(blit_errors_become_command_buffer_errors) {
  id<MTLBuffer> a = Buffer(100);
  struct Case {
    const char* part;
    void (^encode)(id<MTLBlitCommandEncoder>);
  } cases[] = {{"bytes 90 to 110 of a buffer of 100", ^(id<MTLBlitCommandEncoder> e){
                    [e fillBuffer:a range:NSMakeRange(90, 20) value:0];
}
}
, {"copyFromBuffer: source] the buffer is nil", ^(id<MTLBlitCommandEncoder> e){
       [e copyFromBuffer:nil sourceOffset:0 toBuffer:a destinationOffset:0 size:1];
}
}
, {"copyFromBuffer: destination] bytes 50 to 101", ^(id<MTLBlitCommandEncoder> e){
       [e copyFromBuffer:a sourceOffset:0 toBuffer:a destinationOffset:50 size:51];
}
}
,
}
;
for (const Case& c : cases) {
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  c.encode(blit);
  [blit endEncoding];
  Finish(commands);
  CHECK_EQ(commands.status, MTLCommandBufferStatusError);
  CHECK_CONTAINS(Message(commands.error), c.part);
}
}

TEST(misused_encoders_are_errors) {
  id<MTLCommandBuffer> open = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = open.computeCommandEncoder;
  CHECK(open.blitCommandEncoder == nil);
  [encoder endEncoding];
  Finish(open);
  CHECK_CONTAINS(Message(open.error), "another encoder is open");

  id<MTLCommandBuffer> unfinished = Queue().commandBuffer;
  encoder = unfinished.computeCommandEncoder;
  Finish(unfinished);
  CHECK_CONTAINS(Message(unfinished.error), "before endEncoding");
  [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];  // nothing happens
  CHECK(unfinished.computeCommandEncoder == nil);

  id<MTLCommandBuffer> ended = Queue().commandBuffer;
  encoder = ended.computeCommandEncoder;
  [encoder endEncoding];
  [encoder setComputePipelineState:Pipeline("noop")];
  Finish(ended);
  CHECK_CONTAINS(Message(ended.error), "[setComputePipelineState] the encoder has ended");
  [ended commit];  // a second commit is refused, not run again
  CHECK_EQ(ended.status, MTLCommandBufferStatusError);
}

TEST(failed_command_buffer_stops_there_and_the_queue_goes_on) {
  id<MTLCommandQueue> queue = Queue();
  id<MTLBuffer> log = Buffer(4096);
  MTLCommandBufferDescriptor* descriptor = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
  descriptor.errorOptions = MTLCommandBufferErrorOptionEncoderExecutionStatus;
  id<MTLCommandBuffer> commands = [queue commandBufferWithDescriptor:descriptor];
  auto append = [&](id<MTLCommandBuffer> target, uint32_t value, NSString* label, bool bad) {
    id<MTLComputeCommandEncoder> encoder = target.computeCommandEncoder;
    encoder.label = label;
    [encoder setComputePipelineState:Pipeline("append")];
    if (!bad) [encoder setBuffer:log offset:0 atIndex:0];
    [encoder setBytes:&value length:4 atIndex:1];
    [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
    [encoder endEncoding];
  };
  append(commands, 1, @"good", false);
  append(commands, 2, @"bad", true);
  append(commands, 3, @"late", false);
  Finish(commands);
  CHECK_EQ(commands.status, MTLCommandBufferStatusError);
  CHECK_EQ(Contents<uint32_t>(log)[0], 1u);
  NSArray* infos = [[commands.error userInfo] objectForKey:MTLCommandBufferEncoderInfoErrorKey];
  CHECK_EQ([infos count], NSUInteger(3));
  MTLCommandEncoderErrorState expected[] = {MTLCommandEncoderErrorStateCompleted,
                                            MTLCommandEncoderErrorStateFaulted,
                                            MTLCommandEncoderErrorStatePending};
  for (NSUInteger i = 0; i < [infos count]; ++i) {
    id<MTLCommandBufferEncoderInfo> info = [infos objectAtIndex:i];
    CHECK_EQ(info.errorState, expected[i]);
  }
  CHECK_EQ(harness::Text([(id<MTLCommandBufferEncoderInfo>)[infos objectAtIndex:1] label]), "bad");
  id<MTLCommandBuffer> next = queue.commandBuffer;
  append(next, 9, nil, false);
  Finish(next);
  CHECK(next.error == nil);
  CHECK_EQ(Contents<uint32_t>(log)[0], 2u);
}

TEST(events_of_a_failed_command_buffer_are_signalled) {
  id<MTLEvent> event = [[Device() newEvent] autorelease];
  id<MTLBuffer> out = Buffer(64);
  id<MTLCommandBuffer> bad = Queue().commandBuffer, good = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = bad.computeCommandEncoder;
  [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];  // without a pipeline
  [encoder endEncoding];
  [bad encodeSignalEvent:event value:1];
  [good encodeWaitForEvent:event value:1];
  encoder = good.computeCommandEncoder;
  [encoder setComputePipelineState:Pipeline("grid")];
  [encoder setBuffer:out offset:0 atIndex:0];
  [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  [encoder endEncoding];
  [good commit];
  [bad commit];
  [good waitUntilCompleted];  // for ever, once
  [bad waitUntilCompleted];
  CHECK(bad.error != nil);
  CHECK(good.error == nil);
  CHECK_EQ(Contents<uint32_t>(out)[0], 1u);
}

TEST(shader_fault_is_a_page_fault_error) {
  id<MTLBuffer> out = Buffer(64);
  NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:Pipeline("fault")];
    [encoder setBuffer:out offset:0 atIndex:0];
    [encoder dispatchThreads:Size(1000) threadsPerThreadgroup:Size(10)];
  });
  CHECK_EQ([error code], NSInteger(MTLCommandBufferErrorPageFault));
  CHECK_CONTAINS(Message(error), "[fault] write of 4 bytes at offset 4096 (index 1024) of "
                                 "buffer(0) 'out', which has 64 bytes, by "
                                 "thread "
                                 "(3, 0, 0) of threadgroup");
}

TEST(memory_that_is_not_there_is_an_out_of_memory_error) {
  if (!Device().hasUnifiedMemory) return;  // GPUs have no scratch space
  NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:Pipeline("hungry")];
    [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
  CHECK_EQ([error code], NSInteger(MTLCommandBufferErrorOutOfMemory));
  CHECK_CONTAINS(Message(error), "[hungry] no memory for the threadgroups' scratch space");
}

TEST(empty_grids_run_nothing) {
  if (harness::Validating()) return;  // there they are refused: validation_refuses_empty_grids
  id<MTLBuffer> out = Buffer(64);
  CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
          [encoder setComputePipelineState:Pipeline("grid")];
          [encoder setBuffer:out offset:0 atIndex:0];
          [encoder dispatchThreads:Size(0) threadsPerThreadgroup:Size(8)];
          [encoder dispatchThreadgroups:Size(4, 0) threadsPerThreadgroup:Size(4)];
        }) == nil);
  CHECK_EQ(Contents<uint32_t>(out)[0], 0u);
}

TEST(optional_arguments_need_not_be_bound) {
  id<MTLBuffer> out = Buffer(64);
  for (bool enabled : {false, true}) {
    MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    [values setConstantValue:&enabled type:MTLDataTypeBool atIndex:2];
    id<MTLFunction> function = [[harness::Library() newFunctionWithName:@"optional"
                                                         constantValues:values
                                                                  error:nullptr] autorelease];
    id<MTLComputePipelineState> state =
        [[Device() newComputePipelineStateWithFunction:function error:nullptr] autorelease];
    NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) {
      [encoder setComputePipelineState:state];
      [encoder setBuffer:out offset:0 atIndex:0];
      [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
    });
    CHECK_EQ(error != nil, enabled);
    if (enabled) CHECK_CONTAINS(Message(error), "buffer(5) 'extra' is not bound");
  }
}
