// Shared by programs that measure through the Metal API. Where something is missing or fails they
// end with a sentence.

#ifndef METAL_OPS_BENCHMARKS_METAL_PROGRAM_H_
#define METAL_OPS_BENCHMARKS_METAL_PROGRAM_H_

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

// After the C++ headers: Foundation's macros are everywhere.
#import <Metal/Metal.h>

namespace metal_ops {

[[noreturn]] inline void End(const std::string& what, NSError* error) {
  fprintf(stderr, "%s: %s\n", what.c_str(),
          error ? [[error localizedDescription] UTF8String] : "there is none of that name");
  exit(1);
}

inline id<MTLLibrary> OpenLibrary(id<MTLDevice> device, const char* path) {
  NSError* error = nil;
  id<MTLLibrary> library = [device newLibraryWithFile:[NSString stringWithUTF8String:path]
                                                error:&error];
  if (!library) End(path, error);
  return library;
}

// On the first device, and on the last, which is the processor; their names are printed.
struct Libraries {
  explicit Libraries(const char* path) {
    NSArray<id<MTLDevice>>* devices = MTLCopyAllDevices();
    for (id<MTLDevice> device in devices) printf("device: %s\n", [[device name] UTF8String]);
    gpu = OpenLibrary([devices objectAtIndex:0], path);
    cpu = OpenLibrary([devices lastObject], path);
  }
  id<MTLLibrary> gpu, cpu;
};

inline id<MTLComputePipelineState> Pipeline(id<MTLLibrary> library, const std::string& name,
                                            MTLFunctionConstantValues* constants = nil) {
  NSError* error = nil;
  NSString* named = [NSString stringWithUTF8String:name.c_str()];
  id<MTLFunction> function = constants ? [library newFunctionWithName:named
                                                       constantValues:constants
                                                                error:&error]
                                       : [library newFunctionWithName:named];
  id<MTLComputePipelineState> pipeline =
      function ? [[library device] newComputePipelineStateWithFunction:function error:&error] : nil;
  if (!pipeline) End(name, error);
  return pipeline;
}

// Commits and waits; the milliseconds that it took on the device.
inline double Finish(id<MTLCommandBuffer> commands, const std::string& what) {
  [commands commit];
  [commands waitUntilCompleted];
  if ([commands error]) End(what, [commands error]);
  return ([commands GPUEndTime] - [commands GPUStartTime]) * 1e3;
}

// The whole of `to`.
inline void Copy(id<MTLCommandQueue> queue, id<MTLBuffer> from, id<MTLBuffer> to) {
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
  [blit copyFromBuffer:from sourceOffset:0 toBuffer:to destinationOffset:0 size:[to length]];
  [blit endEncoding];
  Finish(commands, "a copy");
}

// Memory of the device's own.
inline id<MTLBuffer> Private(id<MTLDevice> device, int64_t bytes) {
  return [device newBufferWithLength:NSUInteger(std::max<int64_t>(bytes, 16))
                             options:MTLResourceStorageModePrivate];
}

// NaN everywhere, so that unwritten elements are seen.
inline void Poison(id<MTLCommandQueue> queue, id<MTLBuffer> buffer) {
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
  [blit fillBuffer:buffer range:NSMakeRange(0, [buffer length]) value:0xff];
  [blit endEncoding];
  Finish(commands, "a fill");
}

// Milliseconds of one call of many in a command buffer, `rounds` times, in order of size;
// `encode(encoder, i)` encodes call i.
template <typename Encode>
std::vector<double> CallTimes(id<MTLCommandQueue> queue, const std::string& what, int calls,
                              int rounds, const Encode& encode) {
  std::vector<double> times;
  for (int i = -2; i < rounds; ++i) {
    @autoreleasepool {
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      for (int call = 0; call < calls; ++call) encode(encoder, call);
      [encoder endEncoding];
      const double time = Finish(commands, what) / calls;
      if (i >= 0) times.push_back(time);
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

inline double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// A half's, or a bfloat's.
inline float TwoByteValue(bool half, uint16_t bits) {
  if (half) {
    _Float16 value;
    memcpy(&value, &bits, 2);
    return float(value);
  }
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

// The bits of a half, which is rounded, or of a bfloat, which is cut off.
inline uint16_t TwoByteBits(bool half, float value) {
  if (half) {
    const _Float16 rounded = _Float16(value);
    uint16_t bits;
    memcpy(&bits, &rounded, 2);
    return bits;
  }
  uint32_t wide;
  memcpy(&wide, &value, 4);
  return uint16_t(wide >> 16);
}

// The words of each line of a file that is neither empty nor a comment.
template <typename Run>
void ForEachLine(const char* path, const Run& run) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text[0] == '#') continue;
    std::istringstream words(text);
    @autoreleasepool {
      run(words);
    }
  }
}

// The norm of the difference, by that of `expected`.
inline double RelativeError(const std::vector<float>& expected, const std::vector<float>& got) {
  double above = 0, below = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    above += (double(expected[i]) - got[i]) * (double(expected[i]) - got[i]);
    below += double(expected[i]) * expected[i];
  }
  return below > 0 ? sqrt(above / below) : sqrt(above);
}

}  // namespace metal_ops

#endif  // METAL_OPS_BENCHMARKS_METAL_PROGRAM_H_
