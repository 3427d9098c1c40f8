// Counters: times at the start and the end of passes.
#include <vector>

#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Pipeline;
using harness::Text;

namespace {

id<MTLCounterSet> Set() { return [Device().counterSets objectAtIndex:0]; }

MTLCounterSampleBufferDescriptor* Wanted(NSUInteger count) {
  auto* wanted = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
  wanted.counterSet = Set();
  wanted.label = @"times";
  wanted.sampleCount = count;
  return wanted;
}

id<MTLCounterSampleBuffer> Samples(NSUInteger count) {
  NSError* error = nil;
  id<MTLCounterSampleBuffer> samples = [Device() newCounterSampleBufferWithDescriptor:Wanted(count)
                                                                                error:&error];
  CHECK(samples != nil && error == nil);
  return [samples autorelease];
}

std::vector<uint64_t> Times(id<MTLCounterSampleBuffer> samples) {
  NSData* data = [samples resolveCounterRange:NSMakeRange(0, samples.sampleCount)];
  CHECK_EQ([data length], samples.sampleCount * sizeof(MTLCounterResultTimestamp));
  const auto* results = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
  std::vector<uint64_t> times;
  for (NSUInteger i = 0; i < samples.sampleCount; ++i) times.push_back(results[i].timestamp);
  return times;
}

// HOSTMETAL_COUNTERS=stages
bool OnlyStages() {
  const char* counters = getenv("HOSTMETAL_COUNTERS");
  return counters && std::string(counters) == "stages";
}

void Encode(id<MTLComputeCommandEncoder> encoder, id<MTLBuffer> out, uint32_t value) {
  [encoder setComputePipelineState:Pipeline("append")];
  [encoder setBuffer:out offset:0 atIndex:0];
  [encoder setBytes:&value length:4 atIndex:1];
  [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
}

void Append(id<MTLCommandBuffer> commands, id<MTLCounterSampleBuffer> samples, NSUInteger first,
            NSUInteger last) {
  auto* pass = [MTLComputePassDescriptor computePassDescriptor];
  [pass.sampleBufferAttachments objectAtIndexedSubscript:0].sampleBuffer = samples;
  [pass.sampleBufferAttachments objectAtIndexedSubscript:0].startOfEncoderSampleIndex = first;
  [pass.sampleBufferAttachments objectAtIndexedSubscript:0].endOfEncoderSampleIndex = last;
  pass = [[pass copy] autorelease];  // with its attachments
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDescriptor:pass];
  Encode(encoder, Buffer(4096), 7);
  [encoder endEncoding];
}

}  // namespace

TEST(counters_are_timestamps_of_passes) {
  CHECK_EQ(Device().counterSets.count, 1u);
  CHECK_EQ(Text(Set().name), Text(MTLCommonCounterSetTimestamp));
  CHECK_EQ(Text(((id<MTLCounter>)[Set().counters objectAtIndex:0]).name),
           Text(MTLCommonCounterTimestamp));
  CHECK([Device() supportsCounterSampling:MTLCounterSamplingPointAtStageBoundary]);
  CHECK(![Device() supportsCounterSampling:MTLCounterSamplingPointAtDrawBoundary]);
  CHECK(![Device() supportsCounterSampling:MTLCounterSamplingPointAtTileDispatchBoundary]);
}

TEST(samples_between_commands_are_in_their_order) {
  const bool supported =
      [Device() supportsCounterSampling:MTLCounterSamplingPointAtDispatchBoundary];
  CHECK_EQ(supported, !OnlyStages());
  CHECK_EQ(bool([Device() supportsCounterSampling:MTLCounterSamplingPointAtBlitBoundary]),
           supported);
  for (auto type : {MTLDispatchTypeSerial, MTLDispatchTypeConcurrent}) {
    id<MTLCounterSampleBuffer> samples = Samples(8);
    id<MTLBuffer> out = Buffer(4096), filled = Buffer(1 << 22);
    id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:type];
    [encoder sampleCountersInBuffer:samples atSampleIndex:0 withBarrier:YES];
    for (uint32_t i = 1; i < 4; ++i) {
      Encode(encoder, out, i);
      [encoder sampleCountersInBuffer:samples atSampleIndex:i withBarrier:YES];
    }
    [encoder endEncoding];
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit sampleCountersInBuffer:samples atSampleIndex:4 withBarrier:NO];
    [blit fillBuffer:filled range:NSMakeRange(0, 1 << 22) value:3];
    [blit sampleCountersInBuffer:samples atSampleIndex:5 withBarrier:NO];
    [blit endEncoding];
    harness::Finish(commands);
    if (!supported) {
      CHECK_CONTAINS(Message(commands.error), "at the boundaries of passes alone");
      continue;
    }
    CHECK(commands.error == nil);
    const uint32_t* const appended = Contents<uint32_t>(out);
    for (uint32_t i = 1; i < 4; ++i) CHECK_EQ(appended[i], i);  // all have run, in their order
    std::vector<uint64_t> times = Times(samples);
    CHECK_EQ(times[6], MTLCounterErrorValue);
    times.resize(6);
    for (size_t i = 1; i < times.size(); ++i) CHECK(times[i - 1] <= times[i]);
    CHECK(times[0] < times[3]);
    CHECK(times[5] - times[4] > 1000);  // 4 MiB take more than a microsecond
    CHECK(commands.GPUStartTime <= double(times[0]) * 1e-9);
    CHECK(double(times[5]) * 1e-9 <= commands.GPUEndTime);
  }
}

TEST(samples_between_commands_keep_their_buffer) {
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  id<MTLCounterSampleBuffer> samples = nil;
  @autoreleasepool {
    samples = [Device() newCounterSampleBufferWithDescriptor:Wanted(2) error:nullptr];
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    const NSUInteger before = [samples retainCount];
    [encoder sampleCountersInBuffer:samples atSampleIndex:0 withBarrier:YES];
    CHECK([samples retainCount] == before + !OnlyStages());
    [encoder sampleCountersInBuffer:samples atSampleIndex:1 withBarrier:YES];
    CHECK([samples retainCount] == before + !OnlyStages());
    [encoder endEncoding];
    [samples release];
  }
  harness::Finish(commands);
}

TEST(samples_between_commands_that_do_not_fit_are_errors) {
  auto wrong = [](id<MTLCounterSampleBuffer> samples, NSUInteger index) {
    id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder sampleCountersInBuffer:samples atSampleIndex:index withBarrier:YES];
    [encoder endEncoding];
    harness::Finish(commands);
    return Message(commands.error);
  };
  CHECK_CONTAINS(wrong(nil, 0), "[sampleCountersInBuffer] the sample buffer is nil");
  CHECK_CONTAINS(wrong(Samples(2), 2), "[sampleCountersInBuffer] sample 2 of a buffer of 2");
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder endEncoding];
  [encoder sampleCountersInBuffer:Samples(1) atSampleIndex:0 withBarrier:YES];
  harness::Finish(commands);
  CHECK_CONTAINS(Message(commands.error), "[sampleCountersInBuffer] the encoder has ended");
}

TEST(passes_write_their_times_in_order) {
  id<MTLCounterSampleBuffer> samples = Samples(6);
  CHECK(samples.device == Device());
  CHECK_EQ(Text(samples.label), "times");
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  Append(commands, samples, 0, 1);
  auto* pass = [MTLBlitPassDescriptor blitPassDescriptor];
  [pass.sampleBufferAttachments objectAtIndexedSubscript:3].sampleBuffer = samples;
  [pass.sampleBufferAttachments objectAtIndexedSubscript:3].startOfEncoderSampleIndex = 2;
  [pass.sampleBufferAttachments objectAtIndexedSubscript:3].endOfEncoderSampleIndex = 3;
  pass = [[pass copy] autorelease];
  id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoderWithDescriptor:pass];
  id<MTLBuffer> filled = Buffer(1 << 22);
  [blit fillBuffer:filled range:NSMakeRange(0, 1 << 22) value:3];
  [blit endEncoding];
  Append(commands, samples, MTLCounterDontSample, 5);
  for (uint64_t time : Times(samples)) CHECK_EQ(time, MTLCounterErrorValue);
  MTLTimestamp before, after, gpu_before, gpu_after;
  [Device() sampleTimestamps:&before gpuTimestamp:&gpu_before];
  harness::Finish(commands);
  [Device() sampleTimestamps:&after gpuTimestamp:&gpu_after];
  std::vector<uint64_t> times = Times(samples);
  CHECK_EQ(times[4], MTLCounterErrorValue);
  times.erase(times.begin() + 4);
  CHECK(gpu_before < times[0]);
  for (size_t i = 1; i < times.size(); ++i) CHECK(times[i - 1] <= times[i]);
  CHECK_EQ(times[1], times[2]);       // a pass begins as the one before it ends
  CHECK(times[3] - times[2] > 1000);  // 4 MiB take more than a microsecond
  CHECK(times.back() < gpu_after);
  // The command buffer's own times contain them.
  CHECK(commands.GPUStartTime <= double(times[0]) * 1e-9);
  CHECK(double(times.back()) * 1e-9 <= commands.GPUEndTime);
}

TEST(samples_are_resolved_into_a_buffer) {
  id<MTLCounterSampleBuffer> samples = Samples(4);
  id<MTLBuffer> resolved = Buffer(48);
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  Append(commands, samples, 0, 2);
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  [blit resolveCounters:samples
                inRange:NSMakeRange(0, 3)
      destinationBuffer:resolved
      destinationOffset:16];
  [blit endEncoding];
  Append(commands, samples, MTLCounterDontSample, 3);  // too late
  harness::Finish(commands);
  CHECK(commands.error == nil);
  const uint64_t* got = Contents<uint64_t>(resolved);
  const std::vector<uint64_t> times = Times(samples);
  CHECK(times[0] <= times[2] && times[2] <= times[3] && times[3] != MTLCounterErrorValue);
  CHECK_EQ(got[1], 0u);
  CHECK_EQ(got[2], times[0]);
  CHECK_EQ(got[3], MTLCounterErrorValue);
  CHECK_EQ(got[4], times[2]);
  CHECK_EQ(got[5], 0u);

  auto wrong = [&](id<MTLCounterSampleBuffer> from, NSRange range, NSUInteger offset) {
    id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit resolveCounters:from inRange:range destinationBuffer:resolved destinationOffset:offset];
    [blit endEncoding];
    harness::Finish(commands);
    return Message(commands.error);
  };
  CHECK_CONTAINS(wrong(samples, NSMakeRange(2, 3), 0), "[resolveCounters] samples 2 to 5");
  CHECK_CONTAINS(wrong(nil, NSMakeRange(0, 1), 0), "the sample buffer is nil");
  CHECK_CONTAINS(wrong(samples, NSMakeRange(0, 4), 24), "bytes 24 to 56 of a buffer of 48 bytes");
}

TEST(samples_out_of_range_are_errors) {
  NSError* error = nil;
  CHECK(![Device() newCounterSampleBufferWithDescriptor:Wanted(0) error:&error]);
  CHECK_CONTAINS(Message(error), "sampleCount is 0; 1 to 4096 are allowed");
  CHECK(![Device() newCounterSampleBufferWithDescriptor:Wanted(4097) error:&error]);
  auto* wanted = Wanted(1);
  wanted.counterSet = nil;
  CHECK(![Device() newCounterSampleBufferWithDescriptor:wanted error:&error]);
  CHECK_CONTAINS(Message(error), "counterSet is nil");
  CHECK_EQ(error.code, MTLCounterSampleBufferErrorInvalid);
  wanted = Wanted(1);
  wanted.storageMode = MTLStorageModePrivate;
  CHECK(![Device() newCounterSampleBufferWithDescriptor:wanted error:&error]);
  CHECK_CONTAINS(Message(error), "not MTLStorageModeShared");

  id<MTLCounterSampleBuffer> samples = Samples(2);
  CHECK([samples resolveCounterRange:NSMakeRange(1, 2)] == nil);
  id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
  Append(commands, samples, 0, 2);
  harness::Finish(commands);
  CHECK_CONTAINS(Message(commands.error), "sample 2 of a buffer of 2");
}
