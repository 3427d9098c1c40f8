// The cost of the runtime itself: an empty dispatch alone and batched, buffers, dispatch_sync; and
// the hash-encode shader. `bench FIXTURE` prints a table. `bench FIXTURE SHADERS` answers lines
// from stdin with milliseconds: a row's name, or "dump FILE" to write the shader's results.
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "benchmarks/hash_encode_inputs.h"
#include "benchmarks/metal_program.h"
#include "hostmetal/src/sync.h"

namespace {

struct Row {
  const char* name;
  double limit_us;  // 0: none
  int per_run;
  std::function<uint64_t()> run;  // ns of one run
};

template <typename Body>
std::function<uint64_t()> Timed(Body body) {
  return [body] {
    uint64_t begin = hostmetal::Now();
    body();
    return hostmetal::Now() - begin;
  };
}

// Microseconds of every run, sorted.
std::vector<double> Times(const Row& row, int runs) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    @autoreleasepool {
      times.push_back(double(row.run()) * 1e-3 / row.per_run);
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

id<MTLComputePipelineState> Pipeline(id<MTLDevice> device, const char* file, const char* name) {
  return metal_ops::Pipeline(metal_ops::OpenLibrary(device, file), name);
}

template <typename Encode>
void RunOn(id<MTLCommandQueue> queue, Encode encode) {
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  encode(encoder);
  [encoder endEncoding];
  metal_ops::Finish(commands, "a command buffer");
}

// The forward pass as the library's own kernel dispatches it: points x levels.
struct HashEncode {
  using Inputs = metal_ops::HashEncodeInputs;

  HashEncode(id<MTLDevice> device, const char* shaders)
      : pipeline(Pipeline(device, shaders, "hash_encode_float_3_2")),
        queue([device newCommandQueue]) {
    const auto options = MTLResourceStorageModeShared;
    points = [device newBufferWithBytes:inputs.points.data()
                                 length:inputs.points.size() * sizeof(float)
                                options:options];
    table = [device newBufferWithBytes:inputs.table.data()
                                length:inputs.table.size() * sizeof(float)
                               options:options];
    outputs = [device newBufferWithLength:count * sizeof(float) options:options];
  }
  void Run() const {
    RunOn(queue, [&](id<MTLComputeCommandEncoder> encoder) {
      [encoder setComputePipelineState:pipeline];
      [encoder setBuffer:points offset:0 atIndex:0];
      [encoder setBuffer:table offset:0 atIndex:1];
      [encoder setBuffer:outputs offset:0 atIndex:2];
      const HashEncodeParams params = {Inputs::kPoints, Inputs::kLevels, 0};
      [encoder setBytes:&params length:sizeof params atIndex:3];
      [encoder setBytes:inputs.levels length:sizeof inputs.levels atIndex:4];
      [encoder dispatchThreads:MTLSizeMake(Inputs::kPoints, Inputs::kLevels, 1)
          threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
    });
  }

  Inputs inputs;
  size_t count = size_t{Inputs::kPoints} * Inputs::kLevels * Inputs::kFeatures;
  id<MTLComputePipelineState> pipeline;
  id<MTLCommandQueue> queue;
  id<MTLBuffer> points, table, outputs;
};

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc < 2) {
      fprintf(stderr, "usage: bench fixture.metallib [metal_ops.metallib]\n");
      return 2;
    }
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLComputePipelineState> noop = Pipeline(device, argv[1], "noop");
    id<MTLComputePipelineState> add = Pipeline(device, argv[1], "add");
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLBuffer> buffer = [device newBufferWithLength:4096 options:MTLResourceStorageModeShared];
    dispatch_queue_t serial = dispatch_queue_create("bench", DISPATCH_QUEUE_SERIAL);
    [[maybe_unused]] static int calls = 0;
    constexpr int kBatch = 100;
    auto dispatch = [=](id<MTLComputeCommandEncoder> encoder) {
      [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1)
              threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    };

    std::vector<Row> rows = {
        {"empty dispatch, end to end", 20, 1, Timed([=] {
           RunOn(queue, [&](id<MTLComputeCommandEncoder> encoder) {
             [encoder setComputePipelineState:noop];
             dispatch(encoder);
           });
         })},
        {"empty dispatch, one of 100", 5, kBatch, Timed([=] {
           RunOn(queue, [&](id<MTLComputeCommandEncoder> encoder) {
             [encoder setComputePipelineState:noop];
             for (int i = 0; i < kBatch; ++i) dispatch(encoder);
           });
         })},
        {"empty dispatch, queue asleep", 0, 1,
         [=] {
           id<MTLCommandBuffer> commands = [queue commandBuffer];
           id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
           [encoder setComputePipelineState:noop];
           dispatch(encoder);
           [encoder endEncoding];
           usleep(300);
           uint64_t begin = hostmetal::Now();
           [commands commit];
           [commands waitUntilCompleted];
           return hostmetal::Now() - begin;
         }},
        {"commit and wait, no commands", 0, 1, Timed([=] {
           id<MTLCommandBuffer> commands = [queue commandBuffer];
           [commands commit];
           [commands waitUntilCompleted];
         })},
        {"3 buffers, 1024 threads, one of 100", 0, kBatch, Timed([=] {
           RunOn(queue, [&](id<MTLComputeCommandEncoder> encoder) {
             for (int i = 0; i < kBatch; ++i) {
               [encoder setComputePipelineState:add];
               for (NSUInteger b = 0; b < 3; ++b) [encoder setBuffer:buffer offset:0 atIndex:b];
               [encoder dispatchThreads:MTLSizeMake(1024, 1, 1)
                   threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
             }
           });
         })},
        {"buffer of 4 KiB, new and release", 0, 1, Timed([=] {
           [[device newBufferWithLength:4096 options:MTLResourceStorageModeShared] release];
         })},
        {"buffer of 16 MiB, new and release", 0, 1, Timed([=] {
           [[device newBufferWithLength:16 << 20 options:MTLResourceStorageModeShared] release];
         })},
        {"dispatch_sync, uncontended", 0, 1, Timed([=] {
           dispatch_sync(serial, ^{
             ++calls;
           });
         })},
    };

    if (argc == 2) {
      for (const Row& row : rows) {
        std::vector<double> us = Times(row, 2000);
        printf("%-36s median %8.2f us   p90 %8.2f us", row.name, us[us.size() / 2],
               us[us.size() * 9 / 10]);
        if (row.limit_us > 0) printf("   limit %.0f us", row.limit_us);
        printf("\n");
      }
      return 0;
    }

    HashEncode hash_encode(device, argv[2]);
    rows.push_back({"hash encode", 0, 1, Timed([&] { hash_encode.Run(); })});
    for (std::string line; std::getline(std::cin, line);) {
      if (line.rfind("dump ", 0) == 0) {
        hash_encode.Run();
        std::cout << metal_ops::WriteFloats(
                         line.substr(5), static_cast<const float*>([hash_encode.outputs contents]),
                         hash_encode.count)
                  << std::endl;
        continue;
      }
      auto row =
          std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == line; });
      if (row == rows.end()) {
        fprintf(stderr, "no row '%s'\n", line.c_str());
        return 1;
      }
      // A run of microseconds says nothing alone.
      std::vector<double> us = Times(*row, &*row == &rows.back() ? 1 : 200);
      std::cout << us[us.size() / 2] * 1e-3 << std::endl;
    }
  }
  return 0;
}
