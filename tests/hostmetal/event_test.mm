// Events: order across queues, listeners, waiting on the CPU.
#include <unistd.h>

#include <atomic>

#include "tests/hostmetal/harness.h"

using harness::Append;
using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Pipeline;

TEST(events_order_two_queues) {
  id<MTLEvent> event = [[Device() newEvent] autorelease];
  CHECK(event.device == Device());
  id<MTLBuffer> log = Buffer(4096);
  id<MTLCommandQueue> a = [[Device() newCommandQueue] autorelease];
  id<MTLCommandQueue> b = [[Device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> last = nil;
  // Ping and pong: each command buffer waits for the one before it on the other queue.
  for (uint32_t i = 0; i < 20; ++i) {
    id<MTLCommandBuffer> commands = i % 2 ? b.commandBuffer : a.commandBuffer;
    [commands encodeWaitForEvent:event value:i];
    Append(commands, Pipeline("append"), log, i);
    [commands encodeSignalEvent:event value:i + 1];
    [commands commit];
    last = commands;
  }
  [last waitUntilCompleted];
  CHECK_EQ(Contents<uint32_t>(log)[0], 20u);
  for (uint32_t i = 0; i < 20; ++i) CHECK_EQ(Contents<uint32_t>(log)[1 + i], i);
}

TEST(waiting_queue_does_not_stop_another) {
  id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
  CHECK(event.device == nil);
  id<MTLCommandQueue> a = [[Device() newCommandQueue] autorelease];
  id<MTLCommandQueue> b = [[Device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> waits = a.commandBuffer;
  [waits encodeWaitForEvent:event value:5];
  [waits commit];
  id<MTLCommandBuffer> runs = b.commandBuffer;
  [runs commit];
  [runs waitUntilCompleted];
  CHECK(waits.status < MTLCommandBufferStatusCompleted);
  event.signaledValue = 4;
  usleep(3000);
  CHECK(waits.status < MTLCommandBufferStatusCompleted);
  event.signaledValue = 5;
  [waits waitUntilCompleted];
  CHECK_EQ(waits.status, MTLCommandBufferStatusCompleted);
}

TEST(shared_event_signals_the_cpu) {
  id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
  event.label = @"step";
  CHECK_EQ(harness::Text(event.label), "step");
  CHECK_EQ(event.signaledValue, uint64_t(0));
  CHECK(![event waitUntilSignaledValue:1 timeoutMS:10]);
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  [commands encodeSignalEvent:event value:7];
  [commands commit];
  CHECK([event waitUntilSignaledValue:7 timeoutMS:10000]);
  CHECK([event waitUntilSignaledValue:3 timeoutMS:UINT64_MAX]);
  CHECK_EQ(event.signaledValue, uint64_t(7));
}

TEST(listeners_are_notified_at_their_value) {
  id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
  dispatch_queue_t queue = dispatch_queue_create("listener", DISPATCH_QUEUE_SERIAL);
  MTLSharedEventListener* listener =
      [[[MTLSharedEventListener alloc] initWithDispatchQueue:queue] autorelease];
  CHECK(listener.dispatchQueue == queue);
  auto* seen = new std::vector<uint64_t>;
  dispatch_semaphore_t told = dispatch_semaphore_create(0);
  for (uint64_t value : {3u, 1u, 2u}) {
    [event notifyListener:listener
                  atValue:value
                    block:^(id<MTLSharedEvent> e, uint64_t v) {
                      seen->push_back(value);
                      if (e != event || v < value) seen->push_back(1000);
                      dispatch_semaphore_signal(told);
                    }];
  }
  event.signaledValue = 1;
  dispatch_semaphore_wait(told, DISPATCH_TIME_FOREVER);
  dispatch_sync(queue, ^{
    CHECK_EQ(seen->size(), size_t(1));
  });
  event.signaledValue = 9;
  dispatch_semaphore_wait(told, DISPATCH_TIME_FOREVER);
  dispatch_semaphore_wait(told, DISPATCH_TIME_FOREVER);
  // Already reached: told at once, on a listener with a queue of its own.
  MTLSharedEventListener* own = [[[MTLSharedEventListener alloc] init] autorelease];
  __block bool late = false;
  [event notifyListener:own
                atValue:2
                  block:^(id<MTLSharedEvent>, uint64_t) {
                    late = true;
                    dispatch_semaphore_signal(told);
                  }];
  dispatch_semaphore_wait(told, DISPATCH_TIME_FOREVER);
  CHECK(late);
  dispatch_sync(queue, ^{
                });
  CHECK_EQ(seen->size(), size_t(3));
  CHECK_EQ((*seen)[0], uint64_t(1));
  delete seen;
  dispatch_release(told);
  dispatch_release(queue);
}

TEST(cpu_and_device_play_ping_pong) {
  id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
  id<MTLBuffer> log = Buffer(4096);
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  for (uint32_t i = 0; i < 10; ++i) {
    id<MTLCommandBuffer> commands = queue.commandBuffer;
    [commands encodeWaitForEvent:event value:2 * i + 1];
    Append(commands, Pipeline("append"), log, i);
    [commands encodeSignalEvent:event value:2 * i + 2];
    [commands commit];
  }
  for (uint32_t i = 0; i < 10; ++i) {
    CHECK_EQ(Contents<uint32_t>(log)[0], i);
    event.signaledValue = 2 * i + 1;
    CHECK([event waitUntilSignaledValue:2 * i + 2 timeoutMS:10000]);
  }
}

TEST(event_errors) {
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  [commands encodeSignalEvent:nil value:1];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK_CONTAINS(harness::Message(commands.error), "[encodeSignalEvent] the event is nil");
  commands = queue.commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  id<MTLEvent> event = [[Device() newEvent] autorelease];
  [commands encodeWaitForEvent:event value:1];
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK_CONTAINS(harness::Message(commands.error), "another encoder is open");
}

TEST(event_with_listeners_may_be_dropped) {
  MTLSharedEventListener* listener = [[[MTLSharedEventListener alloc] init] autorelease];
  id<MTLSharedEvent> event = [Device() newSharedEvent];
  [event notifyListener:listener
                atValue:1
                  block:^(id<MTLSharedEvent>, uint64_t) {
                    CHECK(false);
                  }];
  [event release];
}

TEST(shared_events_are_made_of_handles) {
  id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
  event.label = @"frames";
  MTLSharedEventHandle* handle = [[event newSharedEventHandle] autorelease];
  CHECK_EQ(harness::Text(handle.label), "frames");
  id<MTLSharedEvent> same = [[Device() newSharedEventWithHandle:handle] autorelease];
  event.signaledValue = 3;
  CHECK_EQ(same.signaledValue, 3u);
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  [commands encodeSignalEvent:same value:9];
  harness::Finish(commands);
  CHECK_EQ(event.signaledValue, 9u);
  CHECK([Device() newSharedEventWithHandle:nil] == nil);
  std::string said;
  @try {
    [handle encodeWithCoder:[[[NSCoder alloc] init] autorelease]];
  } @catch (NSException* e) {
    said = harness::Text(e.reason);
  }
  CHECK_CONTAINS(said, "a handle cannot leave its process");
}
