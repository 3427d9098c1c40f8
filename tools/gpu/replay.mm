// Runs launches that record.py kept through the Metal API: `replay FOLDER LIST RESULTS FIRST END RUNS`.
// LIST has a line per launch (run.py writes it), FOLDER/data the bytes; RESULTS gets, for each of the
// launches FIRST to END - 1, RUNS times 1 or 0 as 32 bits and its buffers afterwards: a pipeline is
// made once, as to compile it takes longer than to run it. Ends with status 3 behind a launch after
// which the process cannot use the GPU any more.
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#import <Metal/Metal.h>

namespace {

std::vector<char> Read(FILE* file, size_t length) {
  std::vector<char> bytes(length + 1);
  if (fread(bytes.data(), 1, length, file) != length) {
    fprintf(stderr, "data is cut off\n");
    exit(2);
  }
  return bytes;
}

struct Bound {
  NSUInteger index, length;
  std::vector<char> before;
  // Kernels work on private memory: an atomic on memory shared with the host goes over the bus each
  // time.
  id<MTLBuffer> staged, buffer;
};

void Copy(id<MTLBlitCommandEncoder> blit, id<MTLBuffer> from, id<MTLBuffer> to) {
  [blit copyFromBuffer:from sourceOffset:0 toBuffer:to destinationOffset:0 size:[from length]];
}

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc != 7) {
      fprintf(stderr, "usage: replay FOLDER LIST RESULTS FIRST END RUNS\n");
      return 2;
    }
    const std::string folder = argv[1];
    const int first = atoi(argv[4]), end = atoi(argv[5]), runs = atoi(argv[6]);
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (!device) return 2;
    id<MTLCommandQueue> queue = [device newCommandQueue];
    std::ifstream list(argv[2]);
    FILE* data = fopen((folder + "/data").c_str(), "rb");
    FILE* results = fopen(argv[3], "wb");
    if (!data || !results) return 2;
    std::map<std::string, id<MTLLibrary>> libraries;
    std::string line;
    for (int number = 0; number < end && std::getline(list, line); ++number) {
      @autoreleasepool {
        std::istringstream in(line);
        std::string library, kernel;
        NSUInteger t[3], g[3];
        int buffers, constants, lengths;
        in >> library >> kernel >> t[0] >> t[1] >> t[2] >> g[0] >> g[1] >> g[2] >> buffers >>
            constants >> lengths;
        NSError* error = nil;
        std::vector<Bound> bound(buffers);  // nil where nothing is bound
        size_t after = 0;
        for (Bound& b : bound) {
          in >> b.index >> b.length;
          b.before = Read(data, b.length);
          after += b.length;
        }
        MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
        for (int i = 0; i < constants; ++i) {
          NSUInteger index, type, length;
          in >> index >> type >> length;
          const std::vector<char> bytes = Read(data, length);
          [values setConstantValue:bytes.data() type:MTLDataType(type) atIndex:index];
        }
        Read(data, after);  // the CPU's results
        if (number < first) continue;
        std::vector<std::pair<NSUInteger, NSUInteger>> threadgroup(lengths);
        for (auto& [index, length] : threadgroup) in >> index >> length;
        id<MTLLibrary>& loaded = libraries[library];
        if (!loaded) {
          NSString* path = [NSString stringWithUTF8String:(folder + "/" + library).c_str()];
          loaded = [device newLibraryWithFile:path error:&error];
        }
        id<MTLFunction> function =
            [[loaded newFunctionWithName:[NSString stringWithUTF8String:kernel.c_str()]
                          constantValues:values
                                   error:&error] autorelease];
        id<MTLComputePipelineState> pipeline =
            function
                ? [[device newComputePipelineStateWithFunction:function error:&error] autorelease]
                : nil;
        for (int run = 0; run < runs; ++run) {
          @autoreleasepool {
            for (Bound& b : bound) {
              if (!b.length) continue;
              b.staged = [[device newBufferWithBytes:b.before.data()
                                              length:b.length
                                             options:MTLResourceStorageModeShared] autorelease];
              b.buffer = [[device newBufferWithLength:b.length
                                              options:MTLResourceStorageModePrivate] autorelease];
            }
            if (pipeline) {
              id<MTLCommandBuffer> commands = [queue commandBuffer];
              id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
              for (const Bound& b : bound) {
                if (b.buffer) Copy(blit, b.staged, b.buffer);
              }
              [blit endEncoding];
              id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
              [encoder setComputePipelineState:pipeline];
              for (const Bound& b : bound) [encoder setBuffer:b.buffer offset:0 atIndex:b.index];
              for (const auto& [index, length] : threadgroup) {
                [encoder setThreadgroupMemoryLength:length atIndex:index];
              }
              [encoder dispatchThreads:MTLSizeMake(t[0], t[1], t[2])
                  threadsPerThreadgroup:MTLSizeMake(g[0], g[1], g[2])];
              [encoder endEncoding];
              blit = [commands blitCommandEncoder];
              for (const Bound& b : bound) {
                if (b.buffer) Copy(blit, b.buffer, b.staged);
              }
              [blit endEncoding];
              [commands commit];
              [commands waitUntilCompleted];
              error = [commands error];
            }
            const int ran = pipeline && !error;
            if (!ran) {
              printf("%s: %s\n", kernel.c_str(),
                     error ? [[error localizedDescription] UTF8String] : "no kernel");
            }
            fwrite(&ran, sizeof ran, 1, results);
            for (const Bound& b : bound) {
              if (b.buffer) fwrite([b.staged contents], 1, b.length, results);
            }
            if (error && [[error localizedDescription] containsString:@"this process cannot use"]) {
              fclose(results);
              return 3;
            }
          }
        }
      }
    }
    fclose(results);
  }
  return 0;
}
