// The CUDA backend's logic against fake_libcuda.cc: `driver_test FIXTURE FAKE CASE`
// (tests/hostmetal/test_cuda.py).
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#import <Metal/Metal.h>

#include "hostmetal/include/hostmetal.h"

namespace {

int failures = 0;
const char* fixture;
const char* (*fake_log)();
void (*fake_fail)(const char*, int);
void (*fake_hold)(bool);
size_t (*fake_taken)();

void Check(bool ok, const std::string& what) {
  if (ok) return;
  printf("%s\n", what.c_str());
  ++failures;
}
void Has(const std::string& text, const std::string& part) {
  Check(text.find(part) != text.npos, "expected '" + part + "' in\n" + text);
}
void HasNot(const std::string& text, const std::string& part) {
  Check(text.find(part) == text.npos, "did not expect '" + part + "' in\n" + text);
}
std::string Log() { return fake_log(); }
std::string Text(NSError* error) {
  return error ? [[error localizedDescription] UTF8String] : "no error";
}

id<MTLDevice> Device() {
  static id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  return device;
}
id<MTLLibrary> Library(NSError** error = nullptr) {
  return [[Device() newLibraryWithFile:[NSString stringWithUTF8String:fixture]
                                 error:error] autorelease];
}
id<MTLComputePipelineState> Pipeline(NSString* name, uint32_t width = 3, bool bias = false,
                                     NSError** error = nullptr) {
  MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  [values setConstantValue:&width type:MTLDataTypeUInt atIndex:0];
  [values setConstantValue:&bias type:MTLDataTypeBool atIndex:1];
  id<MTLFunction> function = [[Library() newFunctionWithName:name constantValues:values
                                                       error:error] autorelease];
  return [[Device() newComputePipelineStateWithFunction:function error:error] autorelease];
}
id<MTLBuffer> Buffer(NSUInteger length,
                     MTLResourceOptions options = MTLResourceStorageModePrivate) {
  return [[Device() newBufferWithLength:length options:options] autorelease];
}
NSError* Run(const std::function<void(id<MTLComputeCommandEncoder>)>& encode,
             double* ms = nullptr) {
  static id<MTLCommandQueue> queue = [Device() newCommandQueue];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  encode(encoder);
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  if (ms) *ms = ([commands GPUEndTime] - [commands GPUStartTime]) * 1e3;
  return [commands error];
}
std::string Number(uint64_t n) { return std::to_string(n); }
size_t Count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct Small {
  float scale;
  uint32_t count;
};
struct Large {
  float values[80] = {1};
};
const uint32_t kList[4] = {5, 6, 7, 8};

void Encode(id<MTLComputeCommandEncoder> encoder, id<MTLComputePipelineState> pipeline,
            id<MTLBuffer> out, id<MTLBuffer> bias) {
  const Small small = {1.0f, 77};
  const Large large;
  [encoder setComputePipelineState:pipeline];
  [encoder setBuffer:out offset:256 atIndex:0];
  [encoder setBytes:&small length:sizeof small atIndex:1];
  [encoder setBytes:&large length:sizeof large atIndex:2];
  [encoder setBytes:kList length:sizeof kList atIndex:3];
  [encoder setBuffer:bias offset:0 atIndex:4];
  [encoder setThreadgroupMemoryLength:96 atIndex:0];
  [encoder setThreadgroupMemoryLength:128 atIndex:1];
}

const std::map<std::string, std::function<void()>> kCases = {
    {"devices",
     [] {
       NSArray<id<MTLDevice>>* all = [MTLCopyAllDevices() autorelease];
       Check([all count] == 3, "two GPUs and the CPU, not " + Number([all count]));
       Check([[[all objectAtIndex:0] name] isEqual:@"Fake 90"], "first GPU");
       Check([[[all objectAtIndex:1] name] isEqual:@"Fake 80"], "second GPU");
       Has([[[all lastObject] name] UTF8String], "hostmetal");
       Check(Device() == [all objectAtIndex:0], "HOSTMETAL_DEVICE=cuda:0 is the first");
       Check(![Device() hasUnifiedMemory], "memory of its own");
     }},
    {"no_device", [] { Check(!Device(), "a device"); }},
    {"memory",
     [] {
       @autoreleasepool {
         id<MTLBuffer> shared = Buffer(3 << 20, MTLResourceStorageModeShared);
         id<MTLBuffer> own = Buffer(5 << 20);
         std::string log = Log();
         Has(log, "managed 3145728");
         Has(log, "private 5242880");
         Check([shared contents] && ![own contents], "contents of shared memory alone");
         auto* bytes = static_cast<const char*>([shared contents]);
         Check(bytes[0] == 0 && bytes[(3 << 20) - 1] == 0, "new buffers are zero");
         const char text[] = "to the GPU";
         id<MTLBuffer> made =
             [[Device() newBufferWithBytes:text
                                    length:sizeof text
                                   options:MTLResourceStorageModePrivate] autorelease];
         Check(!strcmp(reinterpret_cast<const char*>([made gpuAddress]), text),
               "bytes of a private buffer");
       }
       @autoreleasepool {
         Buffer(5 << 20);
         HasNot(Log(), "private 5242880");  // the block was kept
         // 64 MiB there are: kept memory is given back before a request fails.
         Check(Buffer(40 << 20) != nil, "40 MiB");
       }
       @autoreleasepool {
         Check(Buffer(63 << 20) == nil, "63 MiB beside the slabs");
         Log();
         // More managed memory than half of the free memory is never asked for.
         id<MTLBuffer> host = Buffer(48 << 20, MTLResourceStorageModeShared);
         Check(host != nil && [host contents], "48 MiB of the host");
         std::string log = Log();
         Has(log, "pinned 50331648");
         HasNot(log, "managed 50331648");
       }
     }},
    {"inline_buffers",
     [] {
       const NSUInteger before = [Device() currentAllocatedSize];
       for (NSUInteger length : {NSUInteger(0), NSUInteger(100), NSUInteger(3) << 20}) {
         id<MTLBuffer> buffer = hostmetal_new_inline_buffer(Device(), length, nullptr);
         auto* object = reinterpret_cast<char*>((void*)buffer);
         auto* bytes = reinterpret_cast<char*>([buffer gpuAddress]);
         Check([buffer length] == length, "length " + Number([buffer length]));
         Check([buffer gpuAddress] % 256 == 0, "alignment");
         // The GPU's own memory, which no object can lie in.
         Check(![buffer contents] && [buffer storageMode] == MTLStorageModePrivate, "private");
         Check(bytes + length <= object || bytes >= object + 256 + length, "contents elsewhere");
         Check(hostmetal_fill(buffer, 0, 0xff, length), "a fill");
         if (length) {
           const char text[] = "three";
           char back[sizeof text] = "";
           Check(hostmetal_write(buffer, length - 50, text, sizeof text) &&
                     hostmetal_read(buffer, length - 50, back, sizeof text) && !strcmp(back, text),
                 "bytes there and back");
           Check(bytes[length - 51] == '\xff', "filled");
           Check(!hostmetal_read(buffer, length - 5, back, sizeof text) &&
                     !hostmetal_fill(buffer, length + 1, 0, 0),
                 "not beyond its end");
         }
         Check(hostmetal_is_inline_buffer(buffer), "a buffer");
         for (NSUInteger k = 8; k < length; k += 4096) {
           Check(!hostmetal_is_inline_buffer(object + k), "a slice at " + Number(k));
         }
         id<MTLBuffer> next = hostmetal_new_inline_buffer(Device(), length, nullptr);
         auto* other = reinterpret_cast<char*>((void*)next);
         Check(other < object || other >= object + length, "addresses of two");
         [next release];
         // A part of it keeps the memory, and has addresses in front of which no bytes of the GPU's lie.
         id<MTLBuffer> part = hostmetal_new_inline_part(buffer, length / 2, length / 2, nullptr);
         auto* of_part = reinterpret_cast<char*>((void*)part);
         Check(of_part + length / 2 <= object || of_part >= object + length, "addresses of a part");
         Check([part gpuAddress] == [buffer gpuAddress] + length / 2 && ![part contents],
               "the GPU's memory");
         [buffer release];
         if (length) {
           char back = 0;
           Check(hostmetal_read(part, length / 2 - 1, &back, 1) && back == '\xff',
                 "bytes of a part");
           Check(!hostmetal_read(part, length / 2, &back, 1), "not beyond a part's end");
         }
         [part release];
       }
       Check([Device() currentAllocatedSize] == before, "all given back");
     }},
    {"uploads",
     [] {
       // Pinned, as the GPU reads it once and from where it is.
       const char text[] = "once";
       id<MTLBuffer> buffer =
           [[Device() newBufferWithBytes:text
                                  length:sizeof text
                                 options:MTLResourceCPUCacheModeWriteCombined] autorelease];
       Check(!strcmp(static_cast<const char*>([buffer contents]), text), "its bytes");
       const std::string log = Log();
       Has(log, "pinned");
       HasNot(log, "managed");
       id<MTLBuffer> zero = Buffer(3 << 20, MTLResourceCPUCacheModeWriteCombined);
       Check(static_cast<const char*>([zero contents])[(3 << 20) - 1] == 0, "new ones are zero");
     }},
    {"overlapping_copies",
     [] {
       constexpr size_t kMiB = 1 << 20;
       const size_t rows[][3] = {  // from, to, bytes
           {0, 100, 300},    {100, 0, 300},           {7, 7, 300},   {0, 1, 9 * kMiB},
           {1, 0, 9 * kMiB}, {0, 5 * kMiB, 9 * kMiB}, {0, 300, 300}, {5 * kMiB, 0, 9 * kMiB}};
       std::vector<char> values(14 * kMiB);
       for (size_t i = 0; i < values.size(); ++i) values[i] = char(i * 2654435761u >> 13);
       id<MTLBuffer> buffer = Buffer(values.size());
       auto* contents = reinterpret_cast<char*>([buffer gpuAddress]);
       for (const auto& [from, to, bytes] : rows) {
         memcpy(contents, values.data(), values.size());
         id<MTLCommandBuffer> commands = [[[Device() newCommandQueue] autorelease] commandBuffer];
         id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
         [blit copyFromBuffer:buffer
                  sourceOffset:from
                      toBuffer:buffer
             destinationOffset:to
                          size:bytes];
         [blit endEncoding];
         [commands commit];
         [commands waitUntilCompleted];
         std::vector<char> expected = values;
         memmove(&expected[to], &values[from], bytes);
         Check(![commands error] && !memcmp(contents, expected.data(), expected.size()),
               Number(bytes) + " bytes from " + Number(from) + " to " + Number(to));
       }
     }},
    {"runs_ahead",
     [] {
       id<MTLComputePipelineState> pipeline = Pipeline(@"other");
       id<MTLBuffer> out = Buffer(4096);
       id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
       fake_hold(true);
       Log();
       std::vector<id<MTLCommandBuffer>> all;
       __block std::vector<int> order;
       auto* seen = &order;
       for (int i = 0; i < 3; ++i) {
         id<MTLCommandBuffer> commands = [queue commandBuffer];
         id<MTLComputeCommandEncoder> e = [commands computeCommandEncoder];
         [e setComputePipelineState:pipeline];
         [e setBuffer:out offset:0 atIndex:0];
         [e dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
         [e endEncoding];
         [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
           seen->push_back(i);
         }];
         [commands commit];
         all.push_back(commands);
       }
       // All three are launched, while not one of them is done.
       std::string log;
       for (int tries = 0; tries < 5000 && Count(log, "launch") < 3; ++tries) {
         usleep(1000);
         log += Log();
       }
       Check(Count(log, "launch") == 3, "three launches before the first has ended, not\n" + log);
       for (id<MTLCommandBuffer> commands : all) {
         Check([commands status] < MTLCommandBufferStatusCompleted, "still running");
       }
       fake_hold(false);
       [all[2] waitUntilCompleted];
       Check(order == std::vector<int>({0, 1, 2}), "handlers in order");
       for (id<MTLCommandBuffer> commands : all) {
         Check([commands status] == MTLCommandBufferStatusCompleted && ![commands error], "done");
       }
     }},
    {"samples_are_times_of_events",
     [] {
       auto* wanted = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
       wanted.counterSet = [Device().counterSets objectAtIndex:0];
       wanted.sampleCount = 6;
       id<MTLCounterSampleBuffer> samples =
           [[Device() newCounterSampleBufferWithDescriptor:wanted error:nullptr] autorelease];
       id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
       id<MTLCommandBuffer> commands = [[[Device() newCommandQueue] autorelease] commandBuffer];
       for (NSUInteger i = 0; i < 3; ++i) {
         auto* pass = [MTLBlitPassDescriptor blitPassDescriptor];
         auto* attachment = [[pass sampleBufferAttachments] objectAtIndexedSubscript:0];
         attachment.sampleBuffer = samples;
         attachment.startOfEncoderSampleIndex = 2 * i;
         attachment.endOfEncoderSampleIndex = 2 * i + 1;
         id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoderWithDescriptor:pass];
         [blit fillBuffer:Buffer(4096) range:NSMakeRange(0, 4096) value:1];
         [blit endEncoding];
         if (i == 0) [commands encodeSignalEvent:event value:1];  // a point between the passes
       }
       [commands commit];
       [commands waitUntilCompleted];
       Check(![commands error], "no error");
       NSData* data = [samples resolveCounterRange:NSMakeRange(0, 6)];
       const auto* at = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
       // The library there says a quarter of a millisecond from each event to the next.
       Check(at[1].timestamp - at[0].timestamp == 250000, "the first pass");
       Check(at[3].timestamp - at[2].timestamp == 250000, "the second pass");
       Check(at[4].timestamp == at[3].timestamp, "the third begins as the second ends");
       Check(at[5].timestamp - at[4].timestamp == 250000, "the third pass");
     }},
    {"references_to_more_than_is_bound",
     [] {
       // 4 bytes of a Small, by value there, and 100 of a Large: zeros lie behind.
       id<MTLComputePipelineState> scale = Pipeline(@"scale");
       id<MTLBuffer> out = Buffer(4096), short_of = Buffer(356, MTLResourceStorageModeShared);
       memset([short_of contents], 1, 356);
       Log();
       NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) {
         Encode(encoder, scale, out, out);
         const float one = 1;
         [encoder setBytes:&one length:4 atIndex:1];
         [encoder setBuffer:short_of offset:256 atIndex:2];
         [encoder dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
       });
       Check(!error, Text(error));
       std::string log = Log();
       Has(log, "launch msl_scale");
       if (log.find("launch msl_scale") == log.npos) return;
       log = log.substr(log.find("launch msl_scale"));
       std::vector<std::string> parameters;  // the grid, out, small, large
       for (size_t at = log.find(" |"); parameters.size() < 4; at = log.find(" |", at + 1)) {
         parameters.push_back(log.substr(at + 2, log.find(" |", at + 1) - at - 2));
       }
       Has(parameters[2], " 1065353216 0");
       unsigned low = 0, high = 0;
       Check(sscanf(parameters[3].c_str(), "%u %u", &low, &high) == 2, "an address");
       const auto* large = reinterpret_cast<const char*>(uint64_t(high) << 32 | low);
       Check(large != static_cast<const char*>([short_of contents]) + 256, "a copy");
       Check(large[0] == 1 && large[99] == 1 && large[100] == 0 && large[319] == 0, "its bytes");
     }},
    {"samples_between_commands",
     [] {
       Check([Device() supportsCounterSampling:MTLCounterSamplingPointAtDispatchBoundary] &&
                 [Device() supportsCounterSampling:MTLCounterSamplingPointAtBlitBoundary],
             "supported");
       auto* wanted = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
       wanted.counterSet = [Device().counterSets objectAtIndex:0];
       wanted.sampleCount = 4;
       id<MTLCounterSampleBuffer> samples =
           [[Device() newCounterSampleBufferWithDescriptor:wanted error:nullptr] autorelease];
       id<MTLCommandBuffer> commands = [[[Device() newCommandQueue] autorelease] commandBuffer];
       id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
       for (NSUInteger i = 0; i < 4; ++i) {
         if (i > 0) [blit fillBuffer:Buffer(4096) range:NSMakeRange(0, 4096) value:1];
         [blit sampleCountersInBuffer:samples atSampleIndex:i withBarrier:YES];
       }
       [blit endEncoding];
       [commands commit];
       [commands waitUntilCompleted];
       Check(![commands error], "no error");
       NSData* data = [samples resolveCounterRange:NSMakeRange(0, 4)];
       const auto* at = static_cast<const MTLCounterResultTimestamp*>([data bytes]);
       // As above: from each event to the next.
       for (int i = 1; i < 4; ++i) Check(at[i].timestamp - at[i - 1].timestamp == 250000, "a fill");
     }},
    {"handlers_may_wait",
     [] {
       // For a command buffer behind theirs, which the thread that waits for theirs must not stop.
       id<MTLBuffer> out = Buffer(4096);
       id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
       id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
       for (id<MTLCommandBuffer> commands : {first, second}) {
         id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
         [blit fillBuffer:out range:NSMakeRange(0, 4096) value:1];
         [blit endEncoding];
       }
       __block bool waited = false;
       [first addCompletedHandler:^(id<MTLCommandBuffer>) {
         [second waitUntilCompleted];
         waited = true;
       }];
       [first commit];
       [second commit];
       [first waitUntilCompleted];
       Check(waited && [second status] == MTLCommandBufferStatusCompleted, "both are done");
     }},
    {"events_between_queues",
     [] {
       id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
       id<MTLBuffer> out = Buffer(4096);
       auto fill = [&](id<MTLCommandBuffer> commands, uint8_t value) {
         id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
         [blit fillBuffer:out range:NSMakeRange(0, 4096) value:value];
         [blit endEncoding];
       };
       id<MTLCommandBuffer> first = [[[Device() newCommandQueue] autorelease] commandBuffer];
       id<MTLCommandBuffer> second = [[[Device() newCommandQueue] autorelease] commandBuffer];
       fill(first, 1);
       [first encodeSignalEvent:event value:5];
       [second encodeWaitForEvent:event value:5];
       fill(second, 2);
       [second encodeSignalEvent:event value:6];
       Log();
       [second commit];
       usleep(20000);
       HasNot(Log(), "stream waits");  // nothing is promised yet
       fake_hold(true);
       [first commit];
       // The GPU waits by itself: the host has seen neither.
       std::string log;
       for (int tries = 0; tries < 5000 && !Count(log, "stream waits"); ++tries) {
         usleep(1000);
         log += Log();
       }
       Has(log, "stream waits for event");
       Check([event signaledValue] == 0, "not signalled yet");
       fake_hold(false);
       [second waitUntilCompleted];
       Check([event signaledValue] == 6, "signalled in order");
       Check(static_cast<const char*>((void*)[out gpuAddress])[4095] == 2,
             "the second one's bytes");
       // The CPU's device waits on the host, and the GPU for it.
       id<MTLDevice> cpu = [[MTLCopyAllDevices() autorelease] lastObject];
       id<MTLCommandBuffer> third = [[[cpu newCommandQueue] autorelease] commandBuffer];
       id<MTLCommandBuffer> fourth = [[[Device() newCommandQueue] autorelease] commandBuffer];
       [third encodeWaitForEvent:event value:7];
       [third encodeSignalEvent:event value:8];
       [fourth encodeSignalEvent:event value:7];
       [fourth encodeWaitForEvent:event value:8];
       fill(fourth, 3);
       [third commit];
       [fourth commit];
       [fourth waitUntilCompleted];
       Check([event signaledValue] == 8 && ![third error] && ![fourth error],
             "to the CPU and back");
     }},
    // Each queue has a thread that tells the host; the second's may come first.
    {"an_earlier_signal_does_not_undo_a_later_one",
     [] {
       id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
       id<MTLCommandQueue> queues[2] = {[[Device() newCommandQueue] autorelease],
                                        [[Device() newCommandQueue] autorelease]};
       for (uint64_t value = 1; value < 400; value += 2) {
         @autoreleasepool {
           id<MTLCommandBuffer> first = [queues[0] commandBuffer],
                                second = [queues[1] commandBuffer];
           [first encodeSignalEvent:event value:value];
           [second encodeWaitForEvent:event value:value];
           [second encodeSignalEvent:event value:value + 1];
           fake_hold(true);
           [first commit];
           [second commit];
           fake_hold(false);
           [second waitUntilCompleted];
           [first waitUntilCompleted];
           Check([event signaledValue] == value + 1, "the later of two ordered signals stays");
         }
       }
     }},
    {"signals_of_the_failed",
     [] {
       id<MTLSharedEvent> event = [[Device() newSharedEvent] autorelease];
       id<MTLBuffer> out = Buffer(4096);
       id<MTLCommandBuffer> first = [[[Device() newCommandQueue] autorelease] commandBuffer];
       id<MTLBlitCommandEncoder> blit = [first blitCommandEncoder];
       [blit fillBuffer:out range:NSMakeRange(0, 4096) value:1];
       [blit endEncoding];
       [first encodeSignalEvent:event value:1];
       fake_fail("cuMemsetD8Async", 2);
       [first commit];
       id<MTLCommandBuffer> second = [[[Device() newCommandQueue] autorelease] commandBuffer];
       [second encodeWaitForEvent:event value:1];
       [second commit];
       [second waitUntilCompleted];
       Check(![second error], Text([second error]));
       [first waitUntilCompleted];
       Has(Text([first error]), "[fill]: CUDA_ERROR_OUT_OF_MEMORY");
     }},
    {"memory_of_processes",
     [] {
       unsigned char name[64];
       uint64_t address = 0, again = 0;
       Check(hostmetal_share_memory(0, 1 << 20, name, &address), "not shared");
       const std::string found(reinterpret_cast<const char*>(address), 1 << 20);
       Check(found == std::string(1 << 20, 0), "not zeros");
       Check(hostmetal_open_memory(0, name, &again) && again == address, "not what was shared");
       memset(name, 1, sizeof name);
       Check(!hostmetal_open_memory(0, name, &again), "opened what nobody shares");
       // Memory without a name is given back.
       const size_t before = fake_taken();
       fake_fail("cuIpcGetMemHandle", 801);
       Check(!hostmetal_share_memory(0, 1 << 20, name, &address), "shared without a name");
       fake_fail("cuMemsetD8Async", 1);
       Check(!hostmetal_share_memory(0, 1 << 20, name, &address), "shared without zeros");
       Check(fake_taken() == before, "memory is lost");
     }},
    {"many_bytes",
     [] {
       // setBytes of more than the stream keeps at once, without a wait in between.
       id<MTLComputePipelineState> pipeline = Pipeline(@"scale");
       id<MTLBuffer> out = Buffer(4096), bias = Buffer(4096);
       id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
       fake_hold(true);
       for (int i = 0; i < 60; ++i) {
         @autoreleasepool {
           id<MTLCommandBuffer> commands = [queue commandBuffer];
           id<MTLComputeCommandEncoder> e = [commands computeCommandEncoder];
           for (int j = 0; j < 300; ++j) {
             Encode(e, pipeline, out, bias);
             [e dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
           }
           [e endEncoding];
           [commands commit];
         }
       }
       fake_hold(false);
       id<MTLCommandBuffer> last = [queue commandBuffer];
       [last commit];
       [last waitUntilCompleted];
       const std::string log = Log();
       Check(Count(log, "launch msl_scale") == 18000,
             "18000 launches, not " + Number(Count(log, "launch msl_scale")));
     }},
    {"borrowed",
     [] {
       @autoreleasepool {
         void* pages = aligned_alloc(4096, 8192);
         __block bool returned = false;
         id<MTLBuffer> buffer = [[Device() newBufferWithBytesNoCopy:pages
                                                             length:8192
                                                            options:MTLResourceStorageModeShared
                                                        deallocator:^(void* p, NSUInteger) {
                                                          returned = true;
                                                          free(p);
                                                        }] autorelease];
         Check([buffer contents] == pages, "the program's own pages");
         Check(!returned, "still in use");
       }
     }},
    {"borrowed_by_several",
     [] {
       // The library pins pages once, for all GPUs; buffers of either, the same and within, share that.
       char* pages = static_cast<char*>(aligned_alloc(4096, 16384));
       id<MTLDevice> second = [[MTLCopyAllDevices() autorelease] objectAtIndex:1];
       auto borrow = [](id<MTLDevice> device, char* from, NSUInteger length) {
         return [device newBufferWithBytesNoCopy:from
                                          length:length
                                         options:MTLResourceStorageModeShared
                                     deallocator:nil];
       };
       Log();
       @autoreleasepool {
         id<MTLBuffer> whole = borrow(Device(), pages, 12288);
         id<MTLBuffer> again = borrow(second, pages, 12288),
                       part = borrow(second, pages + 4096, 4096);
         Check([again contents] == pages && [part contents] == pages + 4096, "the same pages");
         [whole release];
         [part release];
         Check(Log() == "pages 12288\n", "pinned once, and still");
         Check(borrow(Device(), pages + 8192, 8192) == nil, "pages that are pinned in part");
         [again release];
       }
       Check(Log() == "pages back\n", "given back with the last");
       [borrow(second, pages + 8192, 8192) release];
       Check(Log() == "pages 8192\npages back\n", "and pinned anew");
       free(pages);
     }},
    {"launch",
     [] {
       id<MTLComputePipelineState> pipeline = Pipeline(@"scale");
       const std::string module = Log();
       // Only the functions that the kernel uses; constants as numbers, and the code they switch
       // off stays for the JIT to remove.
       Has(module, ".entry msl_scale(");
       HasNot(module, "msl_grid");
       HasNot(module, "msl_other");
       Has(module, ".target sm_80");
       Has(module, "0x00000003;");
       HasNot(module, ", [_msl_fc_kWidth]");
       Has(module, ".global .align 16 .b8 _msl_fc_kWidth[32] = {3, 0, 0, 0");
       Check([pipeline maxTotalThreadsPerThreadgroup] == 640, "what the function says it takes");
       id<MTLBuffer> out = Buffer(4096), bias = Buffer(4096);
       double ms = 0;
       NSError* error = Run(
           [&](id<MTLComputeCommandEncoder> e) {
             Encode(e, pipeline, out, bias);
             [e dispatchThreads:MTLSizeMake(100, 1, 1) threadsPerThreadgroup:MTLSizeMake(24, 1, 1)];
           },
           &ms);
       Check(!error, Text(error));
       const std::string log = Log();
       const uint64_t at = [out gpuAddress] + 256, other = [bias gpuAddress];
       // Grid: threads, threadgroups, first of this launch. A pointer: low word, high word.
       Has(log, "launch msl_scale 5 1 1 of 24 1 1 shared 224 | 100 1 1 5 1 1 0 0 0 | " +
                    Number(uint32_t(at)) + " " + Number(at >> 32) + " | 0 0 1065353216 77 |");
       Has(log, " | " + Number(uint32_t(other)) + " " + Number(other >> 32) + " | 0 | 96\n");
       Check(ms > 0.24 && ms < 0.26, "the device's own time, not " + std::to_string(ms));
       // The same constants again: nothing is compiled. Others: it is.
       Pipeline(@"scale");
       HasNot(Log(), "module");
       id<MTLComputePipelineState> biased = Pipeline(@"scale", 0x80000001u, true);
       Has(Log(), "0x80000001;");
       Check(biased != nil, "a pipeline");
     }},
    {"logs",
     [] {
       id<MTLComputePipelineState> tell = Pipeline(@"tell");
       auto run = [&](MTLLogLevel level) {
         MTLLogStateDescriptor* wanted = [[[MTLLogStateDescriptor alloc] init] autorelease];
         wanted.level = level;
         NSError* error = nil;
         id<MTLLogState> state = [[Device() newLogStateWithDescriptor:wanted
                                                                error:&error] autorelease];
         Check(!error, Text(error));
         __block std::string got;
         [state addLogHandler:^(NSString* subsystem, NSString* category, MTLLogLevel of,
                                NSString* message) {
           got += std::string([subsystem UTF8String]) + " " + [category UTF8String] + " " +
                  std::to_string(of) + " " + [message UTF8String] + "\n";
         }];
         MTLCommandBufferDescriptor* descriptor =
             [[[MTLCommandBufferDescriptor alloc] init] autorelease];
         descriptor.logState = state;
         id<MTLCommandBuffer> commands =
             [[[Device() newCommandQueue] autorelease] commandBufferWithDescriptor:descriptor];
         id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
         [encoder setComputePipelineState:tell];
         [encoder setBuffer:Buffer(4096) offset:0 atIndex:0];
         [encoder dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
         [encoder endEncoding];
         [commands commit];
         [commands waitUntilCompleted];
         Check(![commands error], Text([commands error]));
         return got;
       };
       Check(run(MTLLogLevelDebug) == "gpu log 4 told 5\n", "no message");
       Check(run(MTLLogLevelFault).empty(), "a message below the level");
     }},
    {"much_threadgroup_memory",
     [] {
       Check([Device() maxThreadgroupMemoryLength] == 101376, "what a function may ask for");
       id<MTLComputePipelineState> pipeline = Pipeline(@"scale");
       id<MTLBuffer> out = Buffer(4096), bias = Buffer(4096);
       Log();
       const auto launch = [&](NSUInteger bytes) {
         return Text(Run([&](id<MTLComputeCommandEncoder> e) {
           Encode(e, pipeline, out, bias);
           [e setThreadgroupMemoryLength:bytes atIndex:1];
           [e dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
         }));
       };
       // 96 bytes beside them. Up to 48 KiB nothing is asked for, and an earlier request is not
       // repeated.
       Check(launch(49056) == "no error", "48 KiB");
       HasNot(Log(), "attribute");
       Check(launch(98304) == "no error", "96 KiB");
       Has(Log(), "attribute 8 of msl_scale 98400\nlaunch msl_scale 1 1 1 of 8 1 1 shared 98400");
       Check(launch(65536) == "no error", "less than that");
       HasNot(Log(), "attribute");
       Has(launch(101376), "101472 bytes of threadgroup memory; the limit is 101376");
     }},
    {"indirect_and_large_grids",
     [] {
       id<MTLComputePipelineState> pipeline = Pipeline(@"grid");
       const uint32_t groups[3] = {7, 2, 1};
       id<MTLBuffer> grid =
           [[Device() newBufferWithBytes:groups
                                  length:sizeof groups
                                 options:MTLResourceStorageModePrivate] autorelease];
       id<MTLBuffer> out = Buffer(1 << 20);
       Log();
       NSError* error = Run([&](id<MTLComputeCommandEncoder> e) {
         [e setComputePipelineState:pipeline];
         [e setBuffer:out offset:0 atIndex:0];
         [e dispatchThreadgroupsWithIndirectBuffer:grid
                              indirectBufferOffset:0
                             threadsPerThreadgroup:MTLSizeMake(8, 4, 1)];
         [e dispatchThreadgroups:MTLSizeMake(1, 70000, 1)
             threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
       });
       Check(!error, Text(error));
       const std::string log = Log();
       Has(log, "launch msl_grid 7 2 1 of 8 4 1 shared 0 | 56 8 1 7 2 1 0 0 0 |");
       Has(log, "launch msl_grid 1 65535 1 of 1 1 1 shared 0 | 1 70000 1 1 70000 1 0 0 0 |");
       Has(log, "launch msl_grid 1 4465 1 of 1 1 1 shared 0 | 1 70000 1 1 70000 1 0 65535 0 |");
     }},
    {"modules_go_with_their_pipelines",
     [] {
       fake_fail("cuModuleLoadDataEx", 218);
       @autoreleasepool {
         Check(!Pipeline(@"other"), "a pipeline of code that was refused");
       }
       HasNot(Log(), "unload");  // nothing was loaded
       @autoreleasepool {
         Check(Pipeline(@"other") != nil, "no pipeline");
         HasNot(Log(), "unload");
       }
       Has(Log(), "unload");
     }},
    {"jit_error",
     [] {
       fake_fail("cuModuleLoadDataEx", 218);
       NSError* error = nil;
       Check(!Pipeline(@"other", 1, false, &error), "no pipeline");
       Has(Text(error), "kernel 'other': CUDA_ERROR_INVALID_PTX");
       Has(Text(error), "ptxas: line 7 is not to its taste");
       error = nil;
       Check(Pipeline(@"other", 1, false, &error) != nil, "the next one is made: " + Text(error));
     }},
    {"no_memory_for_a_command_buffer",
     [] {
       id<MTLComputePipelineState> pipeline = Pipeline(@"other");
       id<MTLBuffer> out = Buffer(4096);
       auto encode = [&](id<MTLComputeCommandEncoder> e) {
         [e setComputePipelineState:pipeline];
         [e setBuffer:out offset:0 atIndex:0];
         [e dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
       };
       fake_fail("cuLaunchKernel", 2);
       NSError* error = Run(encode);
       Check([error code] == MTLCommandBufferErrorOutOfMemory, "code " + Number([error code]));
       Has(Text(error), "[other]: CUDA_ERROR_OUT_OF_MEMORY");
       Check(!Run(encode), "the next command buffer runs");
     }},
    {"fault",
     [] {
       id<MTLComputePipelineState> pipeline = Pipeline(@"other");
       id<MTLBuffer> out = Buffer(4096);
       auto encode = [&](id<MTLComputeCommandEncoder> e) {
         [e setComputePipelineState:pipeline];
         [e setBuffer:out offset:0 atIndex:0];
         [e dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
       };
       fake_fail("cuEventSynchronize", 700);
       NSError* error = Run(encode);
       Check([error code] == MTLCommandBufferErrorPageFault, "code " + Number([error code]));
       Has(Text(error), "[other]: CUDA_ERROR_ILLEGAL_ADDRESS");
       Has(Text(error), "this process cannot use the GPU any more");
       error = Run(encode);
       Has(Text(error), "CUDA_ERROR_ILLEGAL_ADDRESS");
       // The CPU's device goes on.
       id<MTLDevice> cpu = [[MTLCopyAllDevices() autorelease] lastObject];
       id<MTLBuffer> there = [[cpu newBufferWithLength:64 options:0] autorelease];
       id<MTLCommandBuffer> commands = [[[cpu newCommandQueue] autorelease] commandBuffer];
       id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
       [blit fillBuffer:there range:NSMakeRange(0, 64) value:9];
       [blit endEncoding];
       [commands commit];
       [commands waitUntilCompleted];
       Check(![commands error] && static_cast<char*>([there contents])[63] == 9,
             "the CPU's device");
     }},
    {"indirect_commands",
     [] {
       auto* described = [[[MTLComputePipelineDescriptor alloc] init] autorelease];
       described.computeFunction = [[Library() newFunctionWithName:@"other"] autorelease];
       described.supportIndirectCommandBuffers = YES;
       id<MTLComputePipelineState> pipeline =
           [[Device() newComputePipelineStateWithDescriptor:described
                                                    options:MTLPipelineOptionNone
                                                 reflection:nullptr
                                                      error:nil] autorelease];
       auto* wanted = [[[MTLIndirectCommandBufferDescriptor alloc] init] autorelease];
       wanted.commandTypes = MTLIndirectCommandTypeConcurrentDispatch;
       id<MTLIndirectCommandBuffer> all =
           [[Device() newIndirectCommandBufferWithDescriptor:wanted maxCommandCount:3
                                                     options:0] autorelease];
       for (NSUInteger i = 0; i < 3; ++i) {
         id<MTLIndirectComputeCommand> command = [all indirectComputeCommandAtIndex:i];
         [command setComputePipelineState:pipeline];
         [command setKernelBuffer:Buffer(256) offset:64 atIndex:0];
         [command concurrentDispatchThreadgroups:MTLSizeMake(5 + i, 1, 1)
                           threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
       }
       id<MTLBuffer> range = Buffer(8, MTLResourceStorageModeShared);
       static_cast<uint32_t*>([range contents])[1] = 2;
       Log();
       NSError* error = Run([&](id<MTLComputeCommandEncoder> encoder) {
         [encoder executeCommandsInBuffer:all withRange:NSMakeRange(1, 2)];
         [encoder executeCommandsInBuffer:all indirectBuffer:range indirectBufferOffset:0];
       });
       Check(!error, Text(error));
       const std::string log = Log();
       Check(Count(log, "launch msl_other") == 4, "four launches in\n" + log);
       Check(Count(log, "launch msl_other 5 ") == 1 && Count(log, "launch msl_other 6 ") == 2 &&
                 Count(log, "launch msl_other 7 ") == 1,
             "grids in\n" + log);
     }},
    {"resolved_samples",
     [] {
       auto* wanted = [[[MTLCounterSampleBufferDescriptor alloc] init] autorelease];
       wanted.counterSet = [[Device() counterSets] objectAtIndex:0];
       wanted.sampleCount = 2;
       id<MTLCounterSampleBuffer> samples =
           [[Device() newCounterSampleBufferWithDescriptor:wanted error:nil] autorelease];
       id<MTLBuffer> times = Buffer(16, MTLResourceStorageModeShared);
       id<MTLCommandBuffer> commands = [[[Device() newCommandQueue] autorelease] commandBuffer];
       auto* pass = [MTLComputePassDescriptor computePassDescriptor];
       auto* attached = [pass.sampleBufferAttachments objectAtIndexedSubscript:0];
       attached.sampleBuffer = samples;
       attached.startOfEncoderSampleIndex = 0;
       attached.endOfEncoderSampleIndex = 1;
       [[commands computeCommandEncoderWithDescriptor:pass] endEncoding];
       id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
       [blit resolveCounters:samples
                     inRange:NSMakeRange(0, 2)
           destinationBuffer:times
           destinationOffset:0];
       [blit endEncoding];
       [commands commit];
       [commands waitUntilCompleted];
       Check(![commands error], Text([commands error]));
       const auto* got = static_cast<const uint64_t*>([times contents]);
       Check(got[0] != 0 && got[0] <= got[1] && got[1] != MTLCounterErrorValue,
             "times " + Number(got[0]) + " and " + Number(got[1]));
     }},
    {"own_instructions",
     [] {
       Check(Pipeline(@"four") != nil, "there is code");
       const std::string module = Log();
       const bool hopper = !getenv("FAKE_CUDA_CAPABILITY");
       Has(module, hopper ? ".target sm_90a\n" : ".target sm_80\n");
       (hopper ? Has : HasNot)(module, "wgmma.");
       Check(Pipeline(@"other") != nil, "a kernel without them");
       Has(Log(), ".target sm_90\n");
     }},
    {"library_without_gpu_code",
     [] {
       NSError* error = nil;
       Check(!Library(&error), "no library");
       Has(Text(error),
           "has no code for GPUs, and this GPU is an sm_90; compile it with 'metal --gpu=sm_80'");
     }},
};

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    fixture = argv[1];
    void* fake = dlopen(argv[2], RTLD_NOW);
    if (argc != 4 || !fake || !kCases.count(argv[3])) {
      printf("usage: driver_test FIXTURE FAKE CASE\n");
      return 2;
    }
    fake_log = reinterpret_cast<const char* (*)()>(dlsym(fake, "fake_log"));
    fake_fail = reinterpret_cast<void (*)(const char*, int)>(dlsym(fake, "fake_fail"));
    fake_hold = reinterpret_cast<void (*)(bool)>(dlsym(fake, "fake_hold"));
    fake_taken = reinterpret_cast<size_t (*)()>(dlsym(fake, "fake_taken"));
    kCases.at(argv[3])();
  }
  return failures != 0;
}
