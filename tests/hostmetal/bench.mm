// What the runtime itself costs: an empty dispatch alone and batched, buffers, dispatch_sync.
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#import <Metal/Metal.h>

#include "hostmetal/src/sync.h"

namespace {

constexpr int kRuns = 2000;

template <typename Body>
void Measure(const char* name, int per_run, double limit_us, Body body) {
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    @autoreleasepool {
      uint64_t begin = hostmetal::Now();
      uint64_t ns;
      if constexpr (std::is_void_v<decltype(body())>) {
        body();
        ns = hostmetal::Now() - begin;
      } else {
        ns = body();  // measured by itself
      }
      times.push_back(double(ns) * 1e-3 / per_run);
    }
  }
  std::sort(times.begin(), times.end());
  printf("%-32s median %8.2f us   p90 %8.2f us", name, times[kRuns / 2], times[kRuns * 9 / 10]);
  if (limit_us > 0) printf("   limit %.0f us", limit_us);
  printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    NSError* error = nil;
    id<MTLLibrary> library = [device newLibraryWithFile:[NSString stringWithUTF8String:argv[1]]
                                                  error:&error];
    if (!library) {
      fprintf(stderr, "%s\n", [[error localizedDescription] UTF8String]);
      return 1;
    }
    id<MTLComputePipelineState> noop =
        [device newComputePipelineStateWithFunction:[library newFunctionWithName:@"noop"]
                                              error:&error];
    id<MTLComputePipelineState> add =
        [device newComputePipelineStateWithFunction:[library newFunctionWithName:@"add"]
                                              error:&error];
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLBuffer> buffer = [device newBufferWithLength:4096 options:MTLResourceStorageModeShared];
    MTLSize one = MTLSizeMake(1, 1, 1), group = MTLSizeMake(32, 1, 1);

    Measure("commit and wait, no commands", 1, 0, [&] {
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      [commands commit];
      [commands waitUntilCompleted];
    });
    Measure("empty dispatch, end to end", 1, 20, [&] {
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      [encoder setComputePipelineState:noop];
      [encoder dispatchThreadgroups:one threadsPerThreadgroup:group];
      [encoder endEncoding];
      [commands commit];
      [commands waitUntilCompleted];
    });
    Measure("empty dispatch, queue asleep", 1, 0, [&] {
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      [encoder setComputePipelineState:noop];
      [encoder dispatchThreadgroups:one threadsPerThreadgroup:group];
      [encoder endEncoding];
      usleep(300);
      uint64_t begin = hostmetal::Now();
      [commands commit];
      [commands waitUntilCompleted];
      return hostmetal::Now() - begin;
    });
    constexpr int kBatch = 100;
    Measure("empty dispatch, one of 100", kBatch, 5, [&] {
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      [encoder setComputePipelineState:noop];
      for (int i = 0; i < kBatch; ++i) {
        [encoder dispatchThreadgroups:one threadsPerThreadgroup:group];
      }
      [encoder endEncoding];
      [commands commit];
      [commands waitUntilCompleted];
    });
    Measure("3 buffers, 1024 threads, 1 of 100", kBatch, 0, [&] {
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      for (int i = 0; i < kBatch; ++i) {
        [encoder setComputePipelineState:add];
        for (NSUInteger b = 0; b < 3; ++b) [encoder setBuffer:buffer offset:0 atIndex:b];
        [encoder dispatchThreads:MTLSizeMake(1024, 1, 1)
            threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
      }
      [encoder endEncoding];
      [commands commit];
      [commands waitUntilCompleted];
    });
    Measure("buffer of 4 KiB, new and release", 1, 0, [&] {
      [[device newBufferWithLength:4096 options:MTLResourceStorageModeShared] release];
    });
    Measure("buffer of 16 MiB, new and release", 1, 0, [&] {
      [[device newBufferWithLength:16 << 20 options:MTLResourceStorageModeShared] release];
    });
    dispatch_queue_t serial = dispatch_queue_create("bench", DISPATCH_QUEUE_SERIAL);
    [[maybe_unused]] static int calls = 0;
    Measure("dispatch_sync, uncontended", 1, 0, [&] {
      dispatch_sync(serial, ^{
        ++calls;
      });
    });
  }
  return 0;
}
