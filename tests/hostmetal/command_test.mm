// Command buffers, encoders, handlers and lifetimes.
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <thread>

#include "hostmetal/src/sync.h"
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

TEST(dispatch_adds_vectors_of_any_length) {
  for (NSUInteger n : {1u, 31u, 32u, 1000u, 100003u}) {
    id<MTLBuffer> a = Buffer(n * 4), b = Buffer(n * 4), out = Buffer(n * 4);
    for (NSUInteger i = 0; i < n; ++i) {
      Contents<float>(a)[i] = float(i);
      Contents<float>(b)[i] = 0.5f;
    }
    NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) {
      [encoder setComputePipelineState:Pipeline("add")];
      id<MTLBuffer> buffers[] = {a, b, out};
      NSUInteger offsets[] = {0, 0, 0};
      [encoder setBuffers:buffers offsets:offsets withRange:NSMakeRange(0, 3)];
      [encoder dispatchThreads:Size(n) threadsPerThreadgroup:Size(64)];
    });
    CHECK(error == nil);
    NSUInteger wrong = 0;
    for (NSUInteger i = 0; i < n; ++i) wrong += Contents<float>(out)[i] != float(i) + 0.5f;
    CHECK_EQ(wrong, NSUInteger(0));
  }
}

#if defined(__x86_64__)
TEST(dispatch_keeps_subnormals_when_the_program_flushes_them) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before |
             0x8040);  // as TensorFlow does on the threads that run ops; new threads inherit it
  id<MTLBuffer> a = Buffer(4096), b = Buffer(4096), out = Buffer(4096);
  for (int i = 0; i < 1024; ++i) Contents<uint32_t>(a)[i] = Contents<uint32_t>(b)[i] = uint32_t(i);
  NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:Pipeline("add")];
    [encoder setBuffer:a offset:0 atIndex:0];
    [encoder setBuffer:b offset:0 atIndex:1];
    [encoder setBuffer:out offset:0 atIndex:2];
    [encoder dispatchThreads:Size(1024) threadsPerThreadgroup:Size(64)];
  });
  CHECK(error == nil);
  CHECK_EQ(_mm_getcsr() & 0x8040, 0x8040u);
  _mm_setcsr(before);
  for (int i = 0; i < 1024; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], uint32_t(2 * i));
}
#endif

TEST(dispatch_covers_three_dimensions_once) {
  struct {
    MTLSize grid, group;
  } cases[] = {{Size(7, 5, 3), Size(4, 2, 2)},
               {Size(1, 1, 9), Size(1, 1, 4)},
               {Size(100, 3), Size(32, 2)},
               {Size(33, 17, 5), Size(8, 4, 4)}};
  for (const auto& c : cases) {
    NSUInteger n = c.grid.width * c.grid.height * c.grid.depth;
    id<MTLBuffer> out = Buffer(n * 16);
    CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
            [encoder setComputePipelineState:Pipeline("grid")];
            [encoder setBuffer:out offset:0 atIndex:0];
            [encoder dispatchThreads:c.grid threadsPerThreadgroup:c.group];
          }) == nil);
    for (NSUInteger i = 0; i < n; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], uint32_t(i + 1));
    // Threads beyond the grid, of groups at its edge, must not run.
    for (NSUInteger i = n; i < 4 * n; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], 0u);
  }
}

TEST(dispatch_threadgroups_multiplies) {
  id<MTLBuffer> out = Buffer(4 * 24);
  CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
          [encoder setComputePipelineState:Pipeline("grid")];
          [encoder setBuffer:out offset:0 atIndex:0];
          [encoder dispatchThreadgroups:Size(3, 2) threadsPerThreadgroup:Size(4)];
        }) == nil);
  for (uint32_t i = 0; i < 24; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], i + 1);
}

TEST(indirect_dispatch_reads_its_grid_when_it_runs) {
  id<MTLBuffer> out = Buffer(4 * 64), grid = Buffer(32);
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  uint32_t groups[] = {4, 1, 1};
  id<MTLBuffer> source = [[Device() newBufferWithBytes:groups length:12 options:0] autorelease];
  [blit copyFromBuffer:source sourceOffset:0 toBuffer:grid destinationOffset:8 size:12];
  [blit endEncoding];
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:Pipeline("grid")];
  [encoder setBuffer:out offset:0 atIndex:0];
  [encoder dispatchThreadgroupsWithIndirectBuffer:grid
                             indirectBufferOffset:8
                            threadsPerThreadgroup:Size(8)];
  [encoder endEncoding];
  Finish(commands);
  CHECK(commands.error == nil);
  CHECK_EQ(Contents<uint32_t>(out)[31], 32u);
  CHECK_EQ(Contents<uint32_t>(out)[32], 0u);
}

TEST(bytes_and_offsets_reach_the_kernel) {
  id<MTLBuffer> out = Buffer(1024);
  CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
          uint32_t amount = 3;
          [encoder setComputePipelineState:Pipeline("increment")];
          [encoder setBytes:&amount length:4 atIndex:1];
          amount = 100;  // the copy counts
          [encoder setBuffer:out offset:512 atIndex:0];
          [encoder dispatchThreads:Size(2) threadsPerThreadgroup:Size(2)];
          [encoder setBufferOffset:8 atIndex:0];
          [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
        }) == nil);
  CHECK_EQ(Contents<uint32_t>(out)[128], 3u);
  CHECK_EQ(Contents<uint32_t>(out)[129], 3u);
  CHECK_EQ(Contents<uint32_t>(out)[2], 3u);
  CHECK_EQ(Contents<uint32_t>(out)[0], 0u);
}

TEST(threadgroup_memory_lengths_reach_the_kernel) {
  id<MTLBuffer> out = Buffer(64);
  CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
          [encoder setComputePipelineState:Pipeline("describe")];
          [encoder setBuffer:out offset:16 atIndex:0];
          [encoder setThreadgroupMemoryLength:256 atIndex:0];
          [encoder setThreadgroupMemoryLength:128 atIndex:1];
          [encoder dispatchThreadgroups:Size(1) threadsPerThreadgroup:Size(8)];
        }) == nil);
  auto* seen = Contents<uint32_t>(out) + 4;
  CHECK_EQ(seen[0], 256u);
  CHECK_EQ(seen[1], 128u);
  CHECK_EQ(seen[2], 0u);
  CHECK_EQ(seen[3], 48u);
  CHECK_EQ(seen[4], 1u);
}

TEST(kernels_with_barriers_run_as_fibers) {
  id<MTLBuffer> out = Buffer(4 * 256 * 8);
  CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
          [encoder setComputePipelineState:Pipeline("barrier")];
          [encoder setBuffer:out offset:0 atIndex:0];
          [encoder dispatchThreadgroups:Size(8) threadsPerThreadgroup:Size(256)];
        }) == nil);
  for (int i = 0; i < 256 * 8; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], 256u);
}

TEST(every_threadgroup_runs_once_before_completion) {
  id<MTLBuffer> marks = Buffer(4 * 80);
  CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
          [encoder setComputePipelineState:Pipeline("slow_mark")];
          [encoder setBuffer:marks offset:0 atIndex:0];
          [encoder dispatchThreadgroups:Size(64) threadsPerThreadgroup:Size(32)];
        }) == nil);
  for (int i = 0; i < 80; ++i) CHECK_EQ(Contents<uint32_t>(marks)[i], i < 64 ? 1u : 0u);
}

TEST(long_serial_dispatches_do_not_overlap) {
  for (bool concurrent : {false, true}) {
    id<MTLBuffer> marks = Buffer(4 * 64), missing = Buffer(4 * 64);
    id<MTLCommandBuffer> commands = Queue().commandBuffer;
    id<MTLComputeCommandEncoder> encoder =
        [commands computeCommandEncoderWithDispatchType:concurrent ? MTLDispatchTypeConcurrent
                                                                   : MTLDispatchTypeSerial];
    [encoder setComputePipelineState:Pipeline("slow_mark")];
    [encoder setBuffer:marks offset:0 atIndex:0];
    [encoder dispatchThreadgroups:Size(64) threadsPerThreadgroup:Size(1)];
    if (concurrent) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
    [encoder setComputePipelineState:Pipeline("check_marks")];
    [encoder setBuffer:missing offset:0 atIndex:1];
    [encoder dispatchThreadgroups:Size(64) threadsPerThreadgroup:Size(1)];
    [encoder endEncoding];
    Finish(commands);
    CHECK(commands.error == nil);
    for (int i = 0; i < 64; ++i) CHECK_EQ(Contents<uint32_t>(missing)[i], 0u);
  }
}

TEST(serial_dispatches_see_each_other) {
  id<MTLBuffer> out = Buffer(4 * 5000);
  CHECK(Run([&](id<MTLComputeCommandEncoder> encoder) {
          uint32_t one = 1;
          [encoder setComputePipelineState:Pipeline("increment")];
          [encoder setBuffer:out offset:0 atIndex:0];
          [encoder setBytes:&one length:4 atIndex:1];
          for (int i = 0; i < 50; ++i) {
            [encoder dispatchThreads:Size(5000) threadsPerThreadgroup:Size(64)];
          }
        }) == nil);
  for (int i = 0; i < 5000; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], 50u);
}

TEST(concurrent_encoder_overlaps_until_a_barrier) {
  id<MTLBuffer> flag = Buffer(8), out = Buffer(4 * 1000);
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder =
      [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  CHECK_EQ(encoder.dispatchType, MTLDispatchTypeConcurrent);
  uint32_t one = 1;
  [encoder setComputePipelineState:Pipeline("increment")];
  [encoder setBuffer:out offset:0 atIndex:0];
  [encoder setBytes:&one length:4 atIndex:1];
  for (int i = 0; i < 20; ++i) {
    [encoder dispatchThreads:Size(1000) threadsPerThreadgroup:Size(10)];
    if (i % 2) {
      [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
    } else {
      id<MTLResource> resources[] = {out};
      [encoder memoryBarrierWithResources:resources count:1];
    }
  }
  (void)flag;
  [encoder endEncoding];
  Finish(commands);
  CHECK(commands.error == nil);
  for (int i = 0; i < 1000; ++i) CHECK_EQ(Contents<uint32_t>(out)[i], 20u);
}

TEST(independent_dispatches_of_a_concurrent_encoder_all_run) {
  id<MTLBuffer> outs[8];
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  MTLComputePassDescriptor* pass = [MTLComputePassDescriptor computePassDescriptor];
  pass.dispatchType = MTLDispatchTypeConcurrent;
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDescriptor:pass];
  [encoder setComputePipelineState:Pipeline("grid")];
  for (NSUInteger i = 0; i < 8; ++i) {
    outs[i] = Buffer(4 * 100 * (i + 1));
    [encoder setBuffer:outs[i] offset:0 atIndex:0];
    [encoder dispatchThreads:Size(100 * (i + 1)) threadsPerThreadgroup:Size(32)];
  }
  [encoder endEncoding];
  Finish(commands);
  CHECK(commands.error == nil);
  for (NSUInteger i = 0; i < 8; ++i) {
    for (uint32_t k = 0; k < 100 * (i + 1); ++k) CHECK_EQ(Contents<uint32_t>(outs[i])[k], k + 1);
  }
}

TEST(blit_copies_and_fills) {
  constexpr NSUInteger kBytes = 3 << 20;
  id<MTLBuffer> a = Buffer(kBytes), b = Buffer(kBytes);
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLBlitCommandEncoder> blit =
      [commands blitCommandEncoderWithDescriptor:[MTLBlitPassDescriptor blitPassDescriptor]];
  [blit fillBuffer:a range:NSMakeRange(1, kBytes - 2) value:0xab];
  [blit copyFromBuffer:a sourceOffset:0 toBuffer:b destinationOffset:5 size:kBytes - 5];
  [blit synchronizeResource:b];
  MTLTextureDescriptor* d =
      [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                         width:2
                                                        height:2
                                                     mipmapped:NO];
  [blit optimizeContentsForGPUAccess:[[Device() newTextureWithDescriptor:d] autorelease]];
  [blit fillBuffer:a range:NSMakeRange(0, 0) value:1];
  // Overlapping ranges of one buffer.
  [blit copyFromBuffer:a sourceOffset:0 toBuffer:a destinationOffset:1 size:100];
  [blit endEncoding];
  Finish(commands);
  CHECK(commands.error == nil);
  auto* bytes = Contents<unsigned char>(b);
  CHECK_EQ(int(bytes[5]), 0);
  CHECK_EQ(int(bytes[6]), 0xab);
  CHECK_EQ(int(bytes[kBytes - 1]), 0xab);
  CHECK_EQ(int(Contents<unsigned char>(a)[1]), 0);
  CHECK_EQ(int(Contents<unsigned char>(a)[kBytes - 1]), 0);
}

TEST(blit_copies_overlapping_ranges) {
  constexpr NSUInteger kWords = 1 << 18, kShift = 1 << 17;
  id<MTLBuffer> buffer = Buffer((kWords + kShift) * 4);
  auto* words = Contents<uint32_t>(buffer);
  for (bool up : {true, false}) {
    for (NSUInteger i = 0; i < kWords + kShift; ++i) words[i] = uint32_t(i);
    id<MTLCommandBuffer> commands = Queue().commandBuffer;
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit copyFromBuffer:buffer
             sourceOffset:up ? 0 : kShift * 4
                 toBuffer:buffer
        destinationOffset:up ? kShift * 4 : 0
                     size:kWords * 4];
    [blit endEncoding];
    Finish(commands);
    NSUInteger wrong = 0;
    for (NSUInteger i = 0; i < kWords; ++i) {
      wrong += words[up ? i + kShift : i] != uint32_t(up ? i : i + kShift);
    }
    CHECK_EQ(wrong, NSUInteger(0));
  }
}

TEST(status_and_times_move_forward) {
  id<MTLCommandQueue> queue = Queue();
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  CHECK(commands.commandQueue == queue);
  CHECK(commands.device == Device());
  CHECK(commands.retainedReferences);
  CHECK_EQ(commands.status, MTLCommandBufferStatusNotEnqueued);
  CHECK_EQ(commands.GPUStartTime, 0.0);
  [commands enqueue];
  CHECK_EQ(commands.status, MTLCommandBufferStatusEnqueued);
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  uint32_t us = 20000;
  [encoder setComputePipelineState:Pipeline("spin")];
  [encoder setBytes:&us length:4 atIndex:0];
  [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  [encoder endEncoding];
  double before = double(hostmetal::Now()) * 1e-9;
  [commands commit];
  CHECK(commands.status >= MTLCommandBufferStatusCommitted);
  [commands waitUntilScheduled];
  CHECK(commands.status >= MTLCommandBufferStatusScheduled);
  [commands waitUntilCompleted];
  CHECK_EQ(commands.status, MTLCommandBufferStatusCompleted);
  CHECK(commands.error == nil);
  CHECK(commands.GPUStartTime >= before);
  CHECK(commands.GPUEndTime - commands.GPUStartTime >= 0.02);
  CHECK(commands.kernelStartTime <= commands.kernelEndTime);
  CHECK(commands.kernelEndTime <= commands.GPUStartTime);
}

TEST(commit_returns_before_the_work_is_done) {
  id<MTLBuffer> flag = Buffer(8);
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:Pipeline("wait_flag")];
  [encoder setBuffer:flag offset:0 atIndex:0];
  [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  [encoder endEncoding];
  [commands commit];
  CHECK(commands.status < MTLCommandBufferStatusCompleted);
  __atomic_store_n(Contents<uint32_t>(flag), 1, __ATOMIC_RELEASE);
  [commands waitUntilCompleted];
  CHECK_EQ(Contents<uint32_t>(flag)[1], 0u);
}

TEST(command_buffers_run_in_commit_and_enqueue_order) {
  id<MTLBuffer> log = Buffer(4096);
  id<MTLCommandQueue> queue = Queue();
  auto encode = [&](id<MTLCommandBuffer> commands, uint32_t value) {
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:Pipeline("append")];
    [encoder setBuffer:log offset:0 atIndex:0];
    [encoder setBytes:&value length:4 atIndex:1];
    [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
    [encoder endEncoding];
  };
  id<MTLCommandBuffer> first = queue.commandBuffer;
  [first enqueue];
  id<MTLCommandBuffer> last = nil;
  for (uint32_t i = 1; i < 40; ++i) {
    last = queue.commandBuffer;
    encode(last, i);
    [last commit];
  }
  usleep(5000);
  CHECK_EQ(Contents<uint32_t>(log)[0], 0u);  // all wait for the enqueued one
  encode(first, 0);
  [first commit];
  [last waitUntilCompleted];
  CHECK_EQ(Contents<uint32_t>(log)[0], 40u);
  for (uint32_t i = 0; i < 40; ++i) CHECK_EQ(Contents<uint32_t>(log)[1 + i], i);
}

TEST(two_queues_overlap) {
  id<MTLBuffer> flag = Buffer(8);
  id<MTLCommandBuffer> waits = Queue().commandBuffer, sets = Queue().commandBuffer;
  auto encode = [&](id<MTLCommandBuffer> commands, const char* kernel) {
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:Pipeline(kernel)];
    [encoder setBuffer:flag offset:0 atIndex:0];
    [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
    [encoder endEncoding];
  };
  encode(waits, "wait_flag");
  encode(sets, "set_flag");
  [waits commit];
  [sets commit];
  [waits waitUntilCompleted];
  CHECK_EQ(Contents<uint32_t>(flag)[1], 0u);
  [sets waitUntilCompleted];
}

TEST(handlers_run_in_order_with_the_command_buffer) {
  auto* order = new std::vector<int>;
  __block MTLCommandBufferStatus scheduled = MTLCommandBufferStatusNotEnqueued;
  __block MTLCommandBufferStatus completed = MTLCommandBufferStatusNotEnqueued;
  __block id seen = nil;
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  [commands addScheduledHandler:^(id<MTLCommandBuffer> b) {
    scheduled = b.status;
    order->push_back(1);
  }];
  [commands addCompletedHandler:^(id<MTLCommandBuffer> b) {
    completed = b.status;
    seen = b;
    order->push_back(2);
  }];
  [commands addCompletedHandler:^(id<MTLCommandBuffer> b) {
    usleep(10000);
    order->push_back(3);
  }];
  static std::atomic<bool> first_ran{false};
  [commands addScheduledHandler:^(id<MTLCommandBuffer>) {
    first_ran = true;
  }];
  [commands commit];
  [commands waitUntilScheduled];
  CHECK(first_ran.load());
  [commands waitUntilCompleted];
  CHECK_EQ(order->size(), size_t(3));
  for (int i = 0; i < int(order->size()); ++i) CHECK_EQ((*order)[size_t(i)], i + 1);
  CHECK(scheduled >= MTLCommandBufferStatusScheduled);
  CHECK_EQ(completed, MTLCommandBufferStatusCompleted);
  CHECK(seen == commands);
  // Late handlers still run.
  dispatch_semaphore_t late = dispatch_semaphore_create(0);
  [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
    dispatch_semaphore_signal(late);
  }];
  CHECK_EQ(dispatch_semaphore_wait(late, dispatch_time(DISPATCH_TIME_NOW, 5 * NSEC_PER_SEC)), 0);
  dispatch_release(late);
  delete order;
}

TEST(blocked_handler_does_not_stop_the_queue) {
  id<MTLCommandQueue> queue = Queue();
  dispatch_semaphore_t gate = dispatch_semaphore_create(0);
  id<MTLCommandBuffer> first = queue.commandBuffer;
  [first addCompletedHandler:^(id<MTLCommandBuffer>) {
    dispatch_semaphore_wait(gate, DISPATCH_TIME_FOREVER);
  }];
  [first commit];
  id<MTLCommandBuffer> second = queue.commandBuffer;
  Finish(second);
  CHECK_EQ(second.status, MTLCommandBufferStatusCompleted);
  dispatch_semaphore_signal(gate);
  [first waitUntilCompleted];
  dispatch_release(gate);
}

// A waiting thread runs the command buffer and its handlers itself, unless the queue's thread came
// first.
TEST(blocked_handler_on_a_waiting_thread_does_not_stop_the_queue) {
  id<MTLCommandQueue> queue = Queue();
  int here = 0;
  for (int i = 0; i < 50; ++i) {
    dispatch_semaphore_t gate = dispatch_semaphore_create(0);
    id<MTLCommandBuffer> first = [queue.commandBuffer retain];
    std::atomic<bool> entered{false}, on_waiter{false};
    std::atomic<bool>*in_handler = &entered, *by_waiter = &on_waiter;
    std::thread waiter([=] {
      @autoreleasepool {
        const pthread_t self = pthread_self();
        [first addCompletedHandler:^(id<MTLCommandBuffer>) {
          by_waiter->store(pthread_equal(self, pthread_self()) != 0);
          in_handler->store(true);
          dispatch_semaphore_wait(gate, dispatch_time(DISPATCH_TIME_NOW, 5 * NSEC_PER_SEC));
        }];
        [first commit];
        [first waitUntilCompleted];
      }
    });
    while (!entered) usleep(10);
    id<MTLCommandBuffer> second = queue.commandBuffer;
    [second commit];
    const uint64_t deadline = hostmetal::Now() + 2000000000;
    while (second.status != MTLCommandBufferStatusCompleted && hostmetal::Now() < deadline) {
      usleep(10);
    }
    CHECK_EQ(second.status, MTLCommandBufferStatusCompleted);
    dispatch_semaphore_signal(gate);
    waiter.join();
    here += on_waiter ? 1 : 0;
    [first release];
    dispatch_release(gate);
  }
  CHECK(here > 0);
}

TEST(handler_keeps_captured_objects) {
  NSUInteger before = Device().currentAllocatedSize;
  __block NSUInteger length = 0;
  id<MTLCommandQueue> queue = Queue();
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue.commandBuffer retain];
    @autoreleasepool {
      id<MTLBuffer> captured = Buffer(8192);
      [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
        length = captured.length;
      }];
    }
    CHECK(Device().currentAllocatedSize > before);
    Finish(commands);
    [commands release];
  }
  CHECK_EQ(length, NSUInteger(8192));
  CHECK_EQ(Device().currentAllocatedSize, before);
}

TEST(command_buffer_retains_what_it_uses) {
  NSUInteger before = Device().currentAllocatedSize;
  id<MTLBuffer> flag = [Device() newBufferWithLength:8 options:0];
  auto* word = Contents<uint32_t>(flag);
  NSUInteger with_flag = Device().currentAllocatedSize;
  CHECK(with_flag > before);
  id<MTLCommandBuffer> commands = [Queue().commandBuffer retain];
  @autoreleasepool {
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:Pipeline("wait_flag")];
    [encoder setBuffer:flag offset:0 atIndex:0];
    [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
    [encoder endEncoding];
  }
  [flag release];  // the command buffer has the last reference
  [commands commit];
  CHECK_EQ(Device().currentAllocatedSize, with_flag);
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  [commands waitUntilCompleted];
  CHECK_EQ(Device().currentAllocatedSize, before);
  [commands release];
}

TEST(unretained_command_buffer_does_not_retain) {
  NSUInteger before = Device().currentAllocatedSize;
  id<MTLCommandQueue> queue = Queue();
  id<MTLCommandBuffer> commands = queue.commandBufferWithUnretainedReferences;
  CHECK(!commands.retainedReferences);
  MTLCommandBufferDescriptor* descriptor = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
  CHECK(descriptor.retainedReferences);
  descriptor.retainedReferences = NO;
  CHECK(![queue commandBufferWithDescriptor:descriptor].retainedReferences);
  @autoreleasepool {
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit fillBuffer:Buffer(16384) range:NSMakeRange(0, 16) value:1];
    [blit endEncoding];
  }
  CHECK_EQ(Device().currentAllocatedSize, before);  // the buffer is gone: never commit this
}

TEST(queue_limits_uncompleted_command_buffers) {
  id<MTLCommandQueue> queue = [[Device() newCommandQueueWithMaxCommandBufferCount:2] autorelease];
  CHECK([Device() newCommandQueueWithMaxCommandBufferCount:0] == nil);
  for (int i = 0; i < 200; ++i) {
    @autoreleasepool {
      [queue.commandBuffer commit];
    }
  }
  @autoreleasepool {
    // Two that are never committed give their places back.
    (void)queue.commandBuffer;
    (void)queue.commandBuffer;
  }
  Finish(queue.commandBuffer);
}

TEST(labels_and_debug_groups) {
  id<MTLCommandQueue> queue = Queue();
  queue.label = @"training";
  CHECK_EQ(harness::Text(queue.label), "training");
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  commands.label = @"step";
  [commands pushDebugGroup:@"forward"];
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  encoder.label = @"encode";
  CHECK_EQ(harness::Text(encoder.label), "encode");
  CHECK(encoder.device == Device());
  [encoder pushDebugGroup:@"level"];
  [encoder insertDebugSignpost:@"here"];
  [encoder popDebugGroup];
  id<MTLFence> fence = [[Device() newFence] autorelease];
  CHECK(fence.device == Device());
  [encoder updateFence:fence];
  [encoder endEncoding];
  [commands popDebugGroup];
  Finish(commands);
  CHECK_EQ(harness::Text(commands.label), "step");
  CHECK(commands.error == nil);
}
