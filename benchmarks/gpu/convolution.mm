// Convolutions and their gradients on a GPU through the Metal API: results against sums in double, and the device's own
// times, for the sizes and shaders that the lines of a file say. `convolution LIBRARY SPEC [cpu]`; convolution_spec.py
// writes such files.
#include <stdio.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/metal_program.h"
#include "kernels/gemm/conv_warpgroups_params.h"
#include "kernels/gemm/epilogue_params.h"

namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// forward, input or filter; the shader's block, and for a filter's gradient the points of a part.
struct Line {
  std::string kind, shader, type;
  int64_t n = 0, size = 0, channels = 0, filters = 0, window = 0, stride = 0;
  int64_t rows = 0, columns = 0, stages = 0, part = 0;

  int64_t out() const { return Pieces(size, stride); }
  int64_t points() const { return n * out() * out(); }
  int64_t images() const { return n * size * size * channels; }
  int64_t outputs() const { return points() * filters; }
  int64_t filter() const { return window * window * channels * filters; }
  // As TensorFlow's SAME has it.
  int64_t pad() const { return std::max<int64_t>((out() - 1) * stride + window - size, 0) / 2; }
};

class Bench {
 public:
  explicit Bench(id<MTLLibrary> library) : library_(library), device_([library device]) {
    queue_ = [device_ newCommandQueue];
  }

  void Run(const Line& line) {
    const bool half = line.type == "half";
    if (half != is_half_) {
      for (auto& host : host_) host.clear();
    }
    is_half_ = half;
    Make(0, line.images());
    Make(1, line.filter());
    Make(2, line.outputs());
    const bool of_input = line.kind == "input", of_filter = line.kind == "filter";
    ConvGroupsParams p = {};
    p.points = uint32_t(line.points());
    p.out_h = p.out_w = uint32_t(line.out());
    p.in_h = p.in_w = uint32_t(line.size);
    p.channels = uint32_t(line.channels);
    p.columns = uint32_t(line.filters);
    p.filter_h = p.filter_w = uint32_t(line.window);
    p.stride_h = p.stride_w = uint32_t(line.stride);
    p.dilation_h = p.dilation_w = 1;
    p.pad_top = p.pad_left = int32_t(line.pad());
    p.part = uint32_t(line.part);
    int64_t rows = line.points(), depth = 1, elements = line.outputs();
    if (of_input) {
      const int64_t grid = Pieces(line.size, line.stride);
      rows = line.n * grid * grid;
      depth = line.stride * line.stride;
      elements = line.images();
      p.points = uint32_t(rows);
      p.in_h = p.in_w = p.out_h;
      p.out_h = p.out_w = uint32_t(grid);
      p.to_h = p.to_w = uint32_t(line.size);
      std::swap(p.channels, p.columns);
    } else if (of_filter) {
      rows = line.window * line.window * line.channels;
      depth = Pieces(line.points(), line.part);
      elements = line.filter();
    }
    id<MTLBuffer> out = Private(2 * elements),
                  parts = Private(of_filter ? 4 * depth * elements : 0);
    id<MTLComputePipelineState> pipeline = Made(line.shader, line.kind == "forward");
    id<MTLComputePipelineState> join =
        of_filter ? metal_ops::Pipeline(library_, "conv_warpgroups_join_" + line.type) : nil;
    const EpilogueParams epilogue = {};
    const uint32_t count = uint32_t(elements), n_parts = uint32_t(depth);
    const MTLSize groups =
        MTLSizeMake(NSUInteger(Pieces(rows, line.rows) * Pieces(p.columns, line.columns)), 1,
                    NSUInteger(depth));
    const auto encode = [&](id<MTLComputeCommandEncoder> encoder, int) {
      [encoder setComputePipelineState:pipeline];
      [encoder setBuffer:device_of_[of_input ? 2 : 0] offset:0 atIndex:0];
      [encoder setBuffer:device_of_[of_filter ? 2 : 1] offset:0 atIndex:1];
      [encoder setBuffer:of_filter ? parts : out offset:0 atIndex:2];
      [encoder setBytes:&p length:sizeof p atIndex:3];
      if (line.kind == "forward") {
        // Nothing is fused: the arguments do not matter.
        for (NSUInteger i = 4; i < 9; ++i) [encoder setBuffer:out offset:0 atIndex:i];
        [encoder setBytes:&epilogue length:sizeof epilogue atIndex:9];
      }
      [encoder setThreadgroupMemoryLength:NSUInteger(CONV_WARPGROUP_BYTES(line.rows, line.columns,
                                                                          line.stages))
                                  atIndex:0];
      [encoder dispatchThreadgroups:groups
              threadsPerThreadgroup:MTLSizeMake(NSUInteger(2 * line.rows), 1, 1)];
      if (!of_filter) return;
      [encoder setComputePipelineState:join];
      [encoder setBuffer:parts offset:0 atIndex:0];
      [encoder setBuffer:out offset:0 atIndex:1];
      [encoder setBytes:&count length:4 atIndex:2];
      [encoder setBytes:&n_parts length:4 atIndex:3];
      [encoder dispatchThreads:MTLSizeMake(NSUInteger(elements / 4), 1, 1)
          threadsPerThreadgroup:MTLSizeMake(128, 1, 1)];
    };
    metal_ops::Poison(queue_, out);
    const std::vector<double> times = metal_ops::CallTimes(queue_, line.kind, 16, 9, encode);
    const double ms = times[times.size() / 2];
    const double flop = 2.0 * double(line.points()) * double(line.filter());
    const double error = Error(line, out), allowed = is_half_ ? 1e-3 : 8e-3;
    printf(
        "%-8s %-36s %s %3lld x %3lld x %4lld -> %4lld, %lld / %lld  %.4f ms (%.4f to %.4f)  %6.1f "
        "TFLOP/s  error %.1e%s\n",
        line.kind.c_str(), line.shader.c_str(), line.type.c_str(), (long long)line.n,
        (long long)line.size, (long long)line.channels, (long long)line.filters,
        (long long)line.window, (long long)line.stride, ms, times.front(), times.back(),
        flop / ms * 1e-9, error, error <= allowed ? "" : "  WRONG");
    fflush(stdout);
    [out release];
    [parts release];
  }

 private:
  id<MTLBuffer> Private(int64_t bytes) { return metal_ops::Private(device_, bytes); }
  id<MTLComputePipelineState> Made(const std::string& name, bool fused) {
    if (!fused) return metal_ops::Pipeline(library_, name);
    MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
    const uint32_t none = 0;
    const bool no = false;
    [values setConstantValue:&none type:MTLDataTypeUInt atIndex:0];
    [values setConstantValue:&no type:MTLDataTypeBool atIndex:1];
    [values setConstantValue:&none type:MTLDataTypeUInt atIndex:2];
    [values setConstantValue:&no type:MTLDataTypeBool atIndex:3];
    return metal_ops::Pipeline(library_, name, values);
  }
  float Value(uint16_t bits) const { return metal_ops::TwoByteValue(is_half_, bits); }
  // Numbers from -1 to 1: of the images, of the filter, of the outputs' gradient.
  void Make(int which, int64_t elements) {
    if (host_[which].size() == size_t(elements)) return;
    std::vector<uint16_t> bits(static_cast<size_t>(elements));
    host_[which].resize(size_t(elements));
    for (size_t i = 0; i < bits.size(); ++i) {
      state_ = state_ * 1664525u + 1013904223u;
      const float value = float(state_ >> 8) * (2.0f / (1 << 24)) - 1.0f;
      bits[i] = metal_ops::TwoByteBits(is_half_, value);
      host_[which][i] = Value(bits[i]);
    }
    [device_of_[which] release];
    device_of_[which] = Private(2 * elements);
    id<MTLBuffer> from = [device_ newBufferWithBytes:bits.data()
                                              length:NSUInteger(2 * elements)
                                             options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, from, device_of_[which]);
    [from release];
  }
  // One element of the result.
  double Sum(const Line& l, int64_t element) const {
    const float *const x = host_[0].data(), *const w = host_[1].data(), *const d = host_[2].data();
    const int64_t out = l.out(), across = l.kind == "input" ? l.channels : l.filters;
    const int64_t column = element % across, row = element / across;
    double sum = 0;
    // Where a window's point is in the image, or -1.
    const auto pixel = [&](int64_t image, int64_t y, int64_t x) {
      return y < 0 || y >= l.size || x < 0 || x >= l.size ? -1 : (image * l.size + y) * l.size + x;
    };
    if (l.kind == "filter") {
      const int64_t point = row / l.channels, channel = row % l.channels;
      for (int64_t i = 0; i < l.points(); ++i) {
        const int64_t y = i / out % out,
                      to = pixel(i / (out * out), y * l.stride + point / l.window - l.pad(),
                                 i % out * l.stride + point % l.window - l.pad());
        if (to >= 0) sum += double(x[to * l.channels + channel]) * d[i * l.filters + column];
      }
      return sum;
    }
    for (int64_t point = 0; point < l.window * l.window; ++point) {
      const int64_t fy = point / l.window, fx = point % l.window;
      if (l.kind == "forward") {
        const int64_t to = pixel(row / (out * out), row / out % out * l.stride + fy - l.pad(),
                                 row % out * l.stride + fx - l.pad());
        for (int64_t c = 0; to >= 0 && c < l.channels; ++c) {
          sum += double(x[to * l.channels + c]) * w[(point * l.channels + c) * l.filters + column];
        }
        continue;
      }
      const int64_t y = row / l.size % l.size + l.pad() - fy, at = row % l.size + l.pad() - fx;
      if (y < 0 || at < 0 || y % l.stride != 0 || at % l.stride != 0) continue;
      if (y / l.stride >= out || at / l.stride >= out) continue;
      const int64_t from = (row / (l.size * l.size) * out + y / l.stride) * out + at / l.stride;
      for (int64_t f = 0; f < l.filters; ++f) {
        sum += double(d[from * l.filters + f]) * w[(point * l.channels + column) * l.filters + f];
      }
    }
    return sum;
  }
  // The error of some elements, by the norm; 1e30 where an element was not written.
  double Error(const Line& line, id<MTLBuffer> from) {
    id<MTLBuffer> to = [device_ newBufferWithLength:[from length]
                                            options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, from, to);
    const uint16_t* const got = static_cast<const uint16_t*>([to contents]);
    const int64_t n = int64_t([from length] / 2);
    for (int64_t i = 0; i < n; ++i) {
      if (!std::isfinite(Value(got[i]))) return 1e30;
    }
    const int64_t some = line.kind == "filter" ? 256 : 4096;
    const unsigned workers = 8;
    std::vector<double> above(workers), below(workers);
    std::vector<std::thread> threads;
    for (unsigned worker = 0; worker < workers; ++worker) {
      threads.emplace_back([&, worker] {
        for (int64_t i = worker; i < some; i += workers) {
          const int64_t element = int64_t(uint64_t(i) * 0x9E3779B97F4A7C15u >> 20) % n;
          const double right = Sum(line, element), difference = Value(got[element]) - right;
          above[worker] += difference * difference;
          below[worker] += right * right;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    double sum_above = 0, sum_below = 0;
    for (unsigned i = 0; i < workers; ++i) sum_above += above[i], sum_below += below[i];
    [to release];
    return sqrt(sum_above / std::max(sum_below, 1e-30));
  }

  id<MTLLibrary> library_;
  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  id<MTLBuffer> device_of_[3] = {};
  std::vector<float> host_[3];
  bool is_half_ = true;
  uint32_t state_ = 7;
};

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc < 3) {
      fprintf(stderr, "usage: convolution LIBRARY SPEC [cpu]\n");
      return 2;
    }
    const auto [gpu, cpu] = metal_ops::Libraries(argv[1]);
    Bench bench(argc > 3 ? cpu : gpu);
    metal_ops::ForEachLine(argv[2], [&](std::istringstream& words) {
      Line l;
      words >> l.kind >> l.shader >> l.type >> l.n >> l.size >> l.channels >> l.filters >>
          l.window >> l.stride >> l.rows >> l.columns >> l.stages >> l.part;
      bench.Run(l);
    });
  }
  return 0;
}
