// Hash encoding on a GPU through the Metal API: medians of the device's own times, versions in
// turns, each compared with the CPU device. `hash_encode LIBRARY [KERNEL...]` runs the kernels
// named (those of metal_ops.metallib by default).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks/hash_encode_inputs.h"
#include "benchmarks/metal_program.h"
#include "kernels/hash_encode/hash_encode_params.h"

namespace {

using metal_ops::Finish;
using metal_ops::Median;
using metal_ops::Pipeline;
using metal_ops::RelativeError;
using Inputs = metal_ops::HashEncodeInputs;
constexpr int kF = Inputs::kFeatures, kL = Inputs::kLevels, kD = Inputs::kDims;

struct Case {
  std::string name;
  bool half, backward;
  NSUInteger group;
  id<MTLComputePipelineState> pipeline, round;  // round: sums to the table's dtype, as the op does
  std::vector<double> ms;
  double error = -1;
};

// A device's arrays for one batch size.
struct Data {
  id<MTLDevice> device;
  id<MTLCommandQueue> queue;
  size_t points;
  id<MTLBuffer> x, table[2], outputs, sums, rounded, incoming[2];
};

std::vector<_Float16> Halves(const std::vector<float>& v) {
  std::vector<_Float16> out(v.size());
  for (size_t i = 0; i < v.size(); ++i) out[i] = _Float16(v[i]);
  return out;
}

id<MTLBuffer> Private(Data& d, const void* bytes, size_t length) {
  id<MTLBuffer> buffer = [d.device newBufferWithLength:length
                                               options:MTLResourceStorageModePrivate];
  id<MTLBuffer> from = [d.device newBufferWithBytes:bytes
                                             length:length
                                            options:MTLResourceStorageModeShared];
  metal_ops::Copy(d.queue, from, buffer);
  [from release];
  return buffer;
}

Data Make(id<MTLDevice> device, const Inputs& inputs, const std::vector<float>& x,
          const std::vector<float>& g) {
  Data d;
  d.device = device;
  d.queue = [device newCommandQueue];
  d.points = x.size() / kD;
  d.x = Private(d, x.data(), x.size() * 4);
  const auto table = Halves(inputs.table), incoming = Halves(g);
  d.table[0] = Private(d, inputs.table.data(), inputs.table.size() * 4);
  d.table[1] = Private(d, table.data(), table.size() * 2);
  d.incoming[0] = Private(d, g.data(), g.size() * 4);
  d.incoming[1] = Private(d, incoming.data(), incoming.size() * 2);
  d.outputs = [device newBufferWithLength:d.points * kL * kF * 4
                                  options:MTLResourceStorageModePrivate];
  d.sums = [device newBufferWithLength:inputs.table.size() * 4
                               options:MTLResourceStorageModePrivate];
  d.rounded = [device newBufferWithLength:inputs.table.size() * 2
                                  options:MTLResourceStorageModePrivate];
  return d;
}

void Free(Data& d) {
  for (id<MTLBuffer> b :
       {d.x, d.table[0], d.table[1], d.outputs, d.sums, d.rounded, d.incoming[0], d.incoming[1]}) {
    [b release];
  }
  [d.queue release];
}

// Milliseconds on the device.
double Run(Data& d, const Inputs& inputs, const Case& c) {
  id<MTLCommandBuffer> commands = [d.queue commandBuffer];
  if (c.backward) {
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit fillBuffer:d.sums range:NSMakeRange(0, [d.sums length]) value:0];
    [blit endEncoding];
  }
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:c.pipeline];
  const HashEncodeParams params = {uint32_t(d.points), kL, 0};
  const uint32_t features = kF;
  if (c.backward) {
    [encoder setBuffer:d.x offset:0 atIndex:0];
    [encoder setBuffer:d.incoming[c.half] offset:0 atIndex:1];
    [encoder setBuffer:d.x offset:0 atIndex:2];
    [encoder setBuffer:d.sums offset:0 atIndex:3];
    [encoder setBytes:&params length:sizeof params atIndex:4];
    [encoder setBytes:inputs.levels length:sizeof inputs.levels atIndex:5];
    [encoder setBytes:&features length:4 atIndex:6];
  } else {
    [encoder setBuffer:d.x offset:0 atIndex:0];
    [encoder setBuffer:d.table[c.half] offset:0 atIndex:1];
    [encoder setBuffer:d.outputs offset:0 atIndex:2];
    [encoder setBytes:&params length:sizeof params atIndex:3];
    [encoder setBytes:inputs.levels length:sizeof inputs.levels atIndex:4];
  }
  [encoder dispatchThreads:MTLSizeMake(d.points, kL, 1)
      threadsPerThreadgroup:MTLSizeMake(c.group, 1, 1)];
  if (c.round) {
    [encoder setComputePipelineState:c.round];
    [encoder setBuffer:d.sums offset:0 atIndex:0];
    [encoder setBuffer:d.rounded offset:0 atIndex:1];
    [encoder setBytes:&features length:4 atIndex:2];
    [encoder dispatchThreads:MTLSizeMake([d.sums length] / 4 / kF, 1, 1)
        threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
  }
  [encoder endEncoding];
  return Finish(commands, c.name);
}

std::vector<float> Result(Data& d, const Case& c) {
  id<MTLBuffer> from = c.backward ? d.sums : d.outputs;
  const bool half = c.half && !c.backward;
  const size_t count = c.backward ? [from length] / 4 : d.points * kL * kF;
  id<MTLBuffer> to =
      [d.device newBufferWithLength:count * (half ? 2 : 4) options:MTLResourceStorageModeShared];
  metal_ops::Copy(d.queue, from, to);
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i] = half ? float(static_cast<const _Float16*>([to contents])[i])
                  : static_cast<const float*>([to contents])[i];
  }
  [to release];
  return out;
}

// ---- every kernel against the CPU device: types, dimensions, features, tables of odd sizes, grids
// with edges
std::vector<float> Once(id<MTLDevice> device, id<MTLLibrary> library, const std::string& type,
                        int dims, int features, bool backward,
                        const std::vector<HashEncodeLevel>& levels, const std::vector<float>& x,
                        const std::vector<float>& values, const std::vector<float>& g,
                        NSUInteger group) {
  const size_t width = type == "float" ? 4 : 2, points = x.size() / size_t(dims);
  auto bytes = [&](const std::vector<float>& from) {
    std::vector<uint8_t> to(from.size() * width);
    for (size_t i = 0; i < from.size(); ++i) {
      uint32_t bits;
      memcpy(&bits, &from[i], 4);
      const _Float16 half = _Float16(from[i]);
      const uint16_t upper = uint16_t(bits >> 16);
      memcpy(&to[i * width],
             width == 4       ? (const void*)&bits
             : type == "half" ? (const void*)&half
                              : &upper,
             width);
    }
    return to;
  };
  auto buffer = [&](const void* from, size_t size) {
    return [[device newBufferWithBytes:from length:size
                               options:MTLResourceStorageModeShared] autorelease];
  };
  const std::vector<uint8_t> table = bytes(values), incoming = bytes(g);
  const size_t out_bytes = backward ? values.size() * 4 : g.size() * width;
  id<MTLBuffer> out = [[device newBufferWithLength:out_bytes
                                           options:MTLResourceStorageModeShared] autorelease];
  id<MTLBuffer> points_buffer = buffer(x.data(), x.size() * 4);
  const std::string name = std::string("hash_encode_") + (backward ? "grad_add_" : "") + type +
                           "_" + std::to_string(dims) + "_" + std::to_string(features);
  const HashEncodeParams params = {uint32_t(points), uint32_t(levels.size()), 0};
  const uint32_t n_features = uint32_t(features);
  const size_t level_bytes = levels.size() * sizeof(HashEncodeLevel);
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:Pipeline(library, name)];
  if (backward) {
    [encoder setBuffer:points_buffer offset:0 atIndex:0];
    [encoder setBuffer:buffer(incoming.data(), incoming.size()) offset:0 atIndex:1];
    [encoder setBuffer:points_buffer offset:0 atIndex:2];
    [encoder setBuffer:out offset:0 atIndex:3];
    [encoder setBytes:&params length:sizeof params atIndex:4];
    [encoder setBytes:levels.data() length:level_bytes atIndex:5];
    [encoder setBytes:&n_features length:4 atIndex:6];
  } else {
    [encoder setBuffer:points_buffer offset:0 atIndex:0];
    [encoder setBuffer:buffer(table.data(), table.size()) offset:0 atIndex:1];
    [encoder setBuffer:out offset:0 atIndex:2];
    [encoder setBytes:&params length:sizeof params atIndex:3];
    [encoder setBytes:levels.data() length:level_bytes atIndex:4];
  }
  [encoder dispatchThreads:MTLSizeMake(points, levels.size(), 1)
      threadsPerThreadgroup:MTLSizeMake(group, 1, 1)];
  [encoder endEncoding];
  Finish(commands, name);
  std::vector<float> result(backward ? values.size() : g.size());
  const auto* from = static_cast<const uint8_t*>([out contents]);
  for (size_t i = 0; i < result.size(); ++i) {
    if (backward || width == 4) {
      memcpy(&result[i], from + i * 4, 4);
    } else if (type == "half") {
      _Float16 half;
      memcpy(&half, from + i * 2, 2);
      result[i] = float(half);
    } else {
      uint16_t upper;
      memcpy(&upper, from + i * 2, 2);
      const uint32_t bits = uint32_t(upper) << 16;
      memcpy(&result[i], &bits, 4);
    }
  }
  return result;
}

int CheckAll(id<MTLLibrary> library, id<MTLLibrary> reference) {
  int bad = 0, count = 0;
  uint32_t state = 3;
  auto uniform = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) * (1.0f / (1 << 24));
  };
  for (const char* type : {"float", "half", "bfloat"}) {
    for (int dims = 2; dims <= 4; ++dims) {
      for (int features : {1, 2, 4, 8}) {
        for (int odd = 0; odd < 2; ++odd) {
          for (int backward = 0; backward < 2; ++backward) {
            @autoreleasepool {
              const int n_levels = odd ? 7 : 8;
              std::vector<int32_t> offsets = {odd};
              for (int l = 0; l < n_levels; ++l) {
                offsets.push_back(offsets.back() + (odd ? 101 + 600 * l : l < 4 ? 512 : 2048));
              }
              std::vector<HashEncodeLevel> levels(static_cast<size_t>(n_levels));
              metal_ops::HashEncodeLevels(dims, n_levels, 0.5f, 5, false, offsets.data(),
                                          levels.data());
              const size_t points = odd ? 1061 : 1024;
              std::vector<float> x(points * size_t(dims)),
                  g(points * size_t(n_levels) * size_t(features)),
                  table(size_t(offsets.back()) * size_t(features));
              for (float& v : x) v = 1.2f * uniform() - 0.1f;
              for (float& v : g) v = uniform() - 0.5f;
              for (float& v : table) v = uniform() - 0.5f;
              const NSUInteger group = odd ? 96 : 256;
              const auto a = Once([reference device], reference, type, dims, features, backward,
                                  levels, x, table, g, group);
              const auto b = Once([library device], library, type, dims, features, backward, levels,
                                  x, table, g, group);
              // Sums of atomics end in another order; everything else is the same operation.
              const double error = RelativeError(a, b);
              ++count;
              if (!(error <= (backward ? 1e-6 : 0))) {
                ++bad;
                printf("%s %d dimensions %d features %s %s: error %.3e\n", type, dims, features,
                       odd ? "odd" : "even", backward ? "gradient" : "forward", error);
              }
            }
          }
        }
      }
    }
  }
  printf("%d kernels and shapes compared with the CPU device, %d differ\n", count, bad);
  return bad != 0;
}

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc < 2) {
      fprintf(stderr, "usage: hash_encode LIBRARY [KERNEL[@THREADS]...]\n");
      return 2;
    }
    const auto [library, reference] = metal_ops::Libraries(argv[1]);
    id<MTLDevice> gpu = [library device], cpu = [reference device];
    if (argc == 3 && !strcmp(argv[2], "--check")) return CheckAll(library, reference);
    std::vector<std::string> names(argv + 2, argv + argc);
    if (names.empty()) {
      names = {"hash_encode_float_3_2@512", "hash_encode_half_3_2@512",
               "hash_encode_grad_add_float_3_2@512", "hash_encode_grad_add_half_3_2@512"};
    }
    Inputs inputs;
    std::vector<Case> cases;
    for (const std::string& name : names) {
      Case c;
      size_t at = name.find('@');
      c.name = name.substr(0, at);
      c.half = name.find("half") != name.npos;
      c.backward = name.find("grad") != name.npos || name.find("bwd") != name.npos;
      c.group = at == name.npos ? 256 : NSUInteger(atoi(name.c_str() + at + 1));
      c.pipeline = Pipeline(library, c.name);
      c.round = c.backward && c.half ? Pipeline(library, "hash_encode_round_half") : nil;
      cases.push_back(c);
    }
    const char* sizes = getenv("SIZES");
    const std::string wanted = sizes ? sizes : "4096,262144,1048576,4194304";
    for (size_t at = 0; at < wanted.size();) {
      @autoreleasepool {
        size_t end = std::min(wanted.find(',', at), wanted.size());
        const size_t points = size_t(atol(wanted.substr(at, end - at).c_str()));
        at = end + 1;
        std::vector<float> x(points * kD), g(points * kL * kF);
        uint32_t state = 7;
        auto uniform = [&state] {
          state = state * 1664525u + 1013904223u;
          return static_cast<float>(state >> 8) * (1.0f / (1 << 24));
        };
        for (float& v : x) v = uniform();
        for (float& v : g) v = uniform() - 0.5f;
        Data d = Make(gpu, inputs, x, g);
        if (points <= 8192) {  // compare
          Data r = Make(cpu, inputs, x, g);
          for (Case& c : cases) {
            Case on_cpu = c;
            on_cpu.pipeline = Pipeline(reference, c.name);
            if (c.round) on_cpu.round = Pipeline(reference, "hash_encode_round_half");
            Run(r, inputs, on_cpu);
            Run(d, inputs, c);
            const std::vector<float> a = Result(r, on_cpu), b = Result(d, c);
            c.error = RelativeError(a, b);
          }
          Free(r);
        } else {
          const int runs = points > (1u << 21) ? 15 : 31;
          for (int run = -3; run < runs; ++run) {
            for (Case& c : cases) {
              @autoreleasepool {
                const double ms = Run(d, inputs, c);
                if (run == 0) c.ms.clear();
                c.ms.push_back(ms);
              }
            }
          }
          for (Case& c : cases) {
            printf("%8zu  %-36s @%-4zu %8.4f ms  (min %.4f)  error %.2e\n", points, c.name.c_str(),
                   size_t(c.group), Median(c.ms), *std::min_element(c.ms.begin(), c.ms.end()),
                   c.error);
          }
          fflush(stdout);
        }
        Free(d);
      }
    }
  }
  return 0;
}
