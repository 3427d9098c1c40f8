// The checks that METAL_DEVICE_WRAPPER_TYPE=1 adds; without it these cases check that nothing is
// refused.
#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Size;

namespace {

void Expect(const char* part, void (^encode)(id<MTLComputeCommandEncoder>)) {
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  encode(encoder);
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  if (harness::Validating()) {
    CHECK_CONTAINS(harness::Message(commands.error), part);
  } else {
    CHECK(commands.error == nil);
  }
}

}  // namespace

TEST(validation_refuses_empty_grids) {
  Expect("every dimension must be at least 1", ^(id<MTLComputeCommandEncoder> e) {
    [e setComputePipelineState:harness::Pipeline("noop")];
    [e dispatchThreads:Size(0) threadsPerThreadgroup:Size(1)];
  });
}

TEST(validation_refuses_misaligned_offsets) {
  id<MTLBuffer> out = Buffer(64);
  Expect("not a multiple of 4", ^(id<MTLComputeCommandEncoder> e) {
    [e setComputePipelineState:harness::Pipeline("optional")];
    [e setBuffer:out offset:2 atIndex:0];
    [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
}

TEST(validation_refuses_bytes_where_a_kernel_writes) {
  Expect("read-only, but the kernel may write it", ^(id<MTLComputeCommandEncoder> e) {
    const uint32_t bytes[16] = {};
    [e setComputePipelineState:harness::Pipeline("optional")];
    [e setBytes:bytes length:sizeof(bytes) atIndex:0];
    [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
}

// A host gives 12 bytes for a float3, whose type has 16.
TEST(validation_refuses_bytes_and_buffers_that_are_shorter_than_their_type) {
  id<MTLBuffer> out = Buffer(64), words = Buffer(64);
  for (uint32_t i = 0; i < 16; ++i) {
    Contents<uint32_t>(out)[i] = 99;
    Contents<uint32_t>(words)[i] = 10 + i;
  }
  Expect("buffer(3) 'params' has 12 bytes; Params takes 16", ^(id<MTLComputeCommandEncoder> e) {
    [e setComputePipelineState:harness::Pipeline("params")];
    [e setBuffer:out offset:0 atIndex:0];
    const uint32_t bytes[3] = {5, 6, 7};
    [e setBytes:bytes length:sizeof bytes atIndex:3];
    [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
  Expect("buffer(3) 'params' has 4 bytes; Params takes 16", ^(id<MTLComputeCommandEncoder> e) {
    [e setComputePipelineState:harness::Pipeline("params")];
    [e setBuffer:out offset:16 atIndex:0];
    [e setBuffer:words offset:60 atIndex:3];
    [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
  // Twice in one encoder: the second sees the first one's results.
  Expect("buffer(1) 'words' has 8 bytes; Words takes 16", ^(id<MTLComputeCommandEncoder> e) {
    [e setComputePipelineState:harness::Pipeline("raise")];
    [e setBuffer:words offset:56 atIndex:1];
    for (NSUInteger offset = 32; offset < 64; offset += 16) {
      [e setBuffer:out offset:offset atIndex:0];
      [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
    }
  });
  if (harness::Validating()) {
    CHECK_EQ(Contents<uint32_t>(out)[0], 99u);
    CHECK_EQ(Contents<uint32_t>(words)[15], 25u);
    return;
  }
  const uint32_t expected[16] = {5, 6, 7, 0, 25, 0, 0, 0, 24, 25, 0, 0, 25, 26, 0, 0};
  for (int i = 0; i < 16; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], expected[i]);
  CHECK_EQ(Contents<uint32_t>(words)[13], 23u);
  CHECK_EQ(Contents<uint32_t>(words)[14], 26u);
  CHECK_EQ(Contents<uint32_t>(words)[15], 27u);
}

TEST(validation_refuses_odd_threadgroup_memory) {
  Expect("multiples of 16", ^(id<MTLComputeCommandEncoder> e) {
    [e setThreadgroupMemoryLength:20 atIndex:0];
  });
}

TEST(validation_asks_for_the_length_of_threadgroup_memory) {
  id<MTLBuffer> out = Buffer(64);
  Expect("threadgroup(1) 'y' has no length", ^(id<MTLComputeCommandEncoder> e) {
    [e setComputePipelineState:harness::Pipeline("describe")];
    [e setBuffer:out offset:0 atIndex:0];
    [e setThreadgroupMemoryLength:16 atIndex:0];
    [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
}

// Generated kernels declare memory that most of them do not use, and their hosts say so.
TEST(validation_takes_no_threadgroup_memory_where_the_host_asks_for_none) {
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:harness::Pipeline("describe")];
  [encoder setBuffer:Buffer(64) offset:0 atIndex:0];
  [encoder setThreadgroupMemoryLength:16 atIndex:0];
  [encoder setThreadgroupMemoryLength:0 atIndex:1];
  [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK_EQ(harness::Message(commands.error), "(nil)");
}

TEST(validation_holds_the_pipeline_to_its_promise) {
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  descriptor.computeFunction = [[harness::Library() newFunctionWithName:@"noop"] autorelease];
  descriptor.threadGroupSizeIsMultipleOfThreadExecutionWidth = YES;
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithDescriptor:descriptor
                                               options:0
                                            reflection:nullptr
                                                 error:nullptr] autorelease];
  Expect("promised multiples of 32", ^(id<MTLComputeCommandEncoder> e) {
    [e setComputePipelineState:state];
    [e dispatchThreads:Size(1) threadsPerThreadgroup:Size(33)];
  });
}

TEST(validation_uses_the_checked_kernels) {
  // The fixture has a table of checked kernels with one function more.
  CHECK_EQ([[harness::Library() functionNames] containsObject:@"only_checked"],
           BOOL(harness::Validating()));
}
