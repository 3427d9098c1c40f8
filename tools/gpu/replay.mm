// Runs launches that record.py kept through the Metal API: `replay FOLDER LIST RESULTS FIRST`. LIST
// has a line a launch (run.py writes it), FOLDER/data the bytes; RESULTS gets, a launch from number
// FIRST on, 1 or 0 as 32 bits and its buffers afterwards. Ends with status 3 behind a launch after
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
  id<MTLBuffer> buffer;
};

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc != 5) {
      fprintf(stderr, "usage: replay FOLDER LIST RESULTS FIRST\n");
      return 2;
    }
    const std::string folder = argv[1];
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (!device) return 2;
    printf("%s\n", [[device name] UTF8String]);
    id<MTLCommandQueue> queue = [device newCommandQueue];
    std::ifstream list(argv[2]);
    FILE* data = fopen((folder + "/data").c_str(), "rb");
    FILE* results = fopen(argv[3], "wb");
    if (!data || !results) return 2;
    std::map<std::string, id<MTLLibrary>> libraries;
    int number = 0;
    for (std::string line; std::getline(list, line);) {
      @autoreleasepool {
        std::istringstream in(line);
        std::string library, kernel;
        NSUInteger t[3], g[3];
        int buffers, constants, lengths;
        in >> library >> kernel >> t[0] >> t[1] >> t[2] >> g[0] >> g[1] >> g[2] >> buffers >>
            constants >> lengths;
        NSError* error = nil;
        std::vector<Bound> bound;
        size_t after = 0;
        for (int i = 0; i < buffers; ++i) {
          Bound b;
          in >> b.index >> b.length;
          const std::vector<char> bytes = Read(data, b.length);
          b.buffer = b.length && number >= atoi(argv[4])
                         ? [[device newBufferWithBytes:bytes.data()
                                                length:b.length
                                               options:MTLResourceStorageModeShared] autorelease]
                         : nil;
          after += b.length;
          bound.push_back(b);
        }
        MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
        for (int i = 0; i < constants; ++i) {
          NSUInteger index, type, length;
          in >> index >> type >> length;
          const std::vector<char> bytes = Read(data, length);
          [values setConstantValue:bytes.data() type:MTLDataType(type) atIndex:index];
        }
        Read(data, after);  // what the CPU made
        if (number++ < atoi(argv[4])) continue;
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
        if (pipeline) {
          id<MTLCommandBuffer> commands = [queue commandBuffer];
          id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
          [encoder setComputePipelineState:pipeline];
          for (const Bound& b : bound) [encoder setBuffer:b.buffer offset:0 atIndex:b.index];
          for (int i = 0; i < lengths; ++i) {
            NSUInteger index, length;
            in >> index >> length;
            [encoder setThreadgroupMemoryLength:length atIndex:index];
          }
          [encoder dispatchThreads:MTLSizeMake(t[0], t[1], t[2])
              threadsPerThreadgroup:MTLSizeMake(g[0], g[1], g[2])];
          [encoder endEncoding];
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
          if (b.buffer) fwrite([b.buffer contents], 1, b.length, results);
        }
        if (error && [[error localizedDescription] containsString:@"this process cannot use"]) {
          fclose(results);
          return 3;
        }
      }
    }
    fclose(results);
  }
  return 0;
}
