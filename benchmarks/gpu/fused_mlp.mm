// Small networks on a GPU through the Metal API: the launches of the ops FusedMlp and FusedMlpGrad,
// compared with the CPU device, and medians of the device's own times. `fused_mlp LIBRARY [--check
// | WIDTH...]`
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks/metal_program.h"
#include "kernels/fused_mlp/fused_mlp_params.h"

namespace {

using metal_ops::Finish;
using metal_ops::Median;
using metal_ops::RelativeError;

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

float Uniform() {
  static uint32_t state = 7;
  state = state * 1664525u + 1013904223u;
  return float(state >> 8) * (2.0f / (1 << 24)) - 1.0f;
}

size_t BytesOf(const std::string& type) { return type == "float" ? 4 : 2; }

void Narrow(const std::string& type, const std::vector<float>& from, void* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    uint32_t bits;
    memcpy(&bits, &from[i], 4);
    if (type == "float") static_cast<float*>(to)[i] = from[i];
    if (type == "half") static_cast<_Float16*>(to)[i] = _Float16(from[i]);
    if (type == "bfloat") static_cast<uint16_t*>(to)[i] = uint16_t(bits >> 16);
  }
}

std::vector<float> Wide(const std::string& type, const void* from, size_t n) {
  std::vector<float> to(n);
  for (size_t i = 0; i < n; ++i) {
    if (type == "float") to[i] = static_cast<const float*>(from)[i];
    if (type == "half") to[i] = float(static_cast<const _Float16*>(from)[i]);
    if (type == "bfloat") {
      const uint32_t bits = uint32_t(static_cast<const uint16_t*>(from)[i]) << 16;
      memcpy(&to[i], &bits, 4);
    }
  }
  return to;
}

struct Net {
  std::string type;
  MlpSizes sizes;
  uint32_t activation, output_activation;
  int64_t batch;
};

// A network on one device.
class Run {
 public:
  Run(id<MTLLibrary> library, const Net& net) : net_(net), device_([library device]) {
    queue_ = [device_ newCommandQueue];
    const MlpSizes s = net.sizes;
    const std::string width = "_" + std::to_string(s.width);
    pack_ = Make(library, "fused_mlp_group_pack_" + net.type);
    forward_ = Make(library, "fused_mlp_groups_" + net.type + width);
    backward_ = Make(library, "fused_mlp_groups_backward_" + net.type + width);
    weights_of_ = Make(library, "fused_mlp_groups_weights_" + net.type);
    biases_of_ = Make(library, "fused_mlp_threads_weights_" + net.type);
    sum_ = Make(library, "fused_mlp_group_sum_" + net.type);
    // IN_ONE_PIECE=0: gradients as of networks that do not fit.
    const char* asked = getenv("IN_ONE_PIECE");
    in_one_piece_ = BytesOf(net.type) == 2 && mlp_gradient_fits(s) && !(asked && !atoi(asked));
    if (in_one_piece_) gradient_ = Make(library, "fused_mlp_gradient_" + net.type + width);
    params_ = {};
    params_.sizes = s;
    params_.n_weights = mlp_matrix(s, s.n_layers);
    params_.shape.squareplus_b = 4.0f;
    params_.x_gradient = 1;
    const int64_t line = mlp_slopes_at(s, 1, s.n_layers - 1) + mlp_slopes_line(s, s.n_layers - 1);
    const int64_t bytes = int64_t(BytesOf(net.type));
    const char* scratch = getenv("SCRATCH");
    const int64_t scratch_bytes = scratch ? atoll(scratch) : int64_t{1} << 29;
    params_.chunk = std::min(net.batch, scratch_bytes / (line * bytes));
    const char* parts = getenv("PARTS");
    params_.split = uint32_t(
        16 * std::max<int64_t>(32, Pieces(params_.chunk, 16 * (parts ? atoll(parts) : 512))));
    n_parts_ = uint32_t(Pieces(params_.chunk, params_.split));
    if (in_one_piece_) {
      const char* groups = getenv("PARTS");
      const int64_t tiles = Pieces(net.batch, MLP_GRADIENT_ROWS);
      n_parts_ = uint32_t(Pieces(tiles, Pieces(tiles, groups ? atoll(groups) : 264)));
    }
    x = Buffer(net.batch * s.inputs, bytes);
    gradients = Buffer(net.batch * s.outputs, bytes);
    weights = Buffer(params_.n_weights, bytes);
    outputs = Buffer(net.batch * s.outputs, bytes);
    d_x = Buffer(net.batch * s.inputs, bytes);
    d_weights = Buffer(params_.n_weights, bytes);
    packed_ = Buffer(mlp_packed_bias(s, 0), bytes);
    biases_ = Buffer(s.n_layers * MLP_MOST_COLUMNS, 4);
    scratch_ = Buffer(params_.chunk * line, bytes);
    parts_ = Buffer(int64_t(n_parts_) * params_.n_weights, 4);
  }
  ~Run() {
    for (id<MTLBuffer> b :
         {x, gradients, weights, outputs, d_x, d_weights, packed_, biases_, scratch_, parts_}) {
      [b release];
    }
    [queue_ release];
  }

  void Write(id<MTLBuffer> to, const std::vector<float>& values) {
    id<MTLBuffer> from = [device_ newBufferWithLength:[to length]
                                              options:MTLResourceStorageModeShared];
    Narrow(net_.type, values, [from contents]);
    metal_ops::Copy(queue_, from, to);
    [from release];
  }
  std::vector<float> Read(id<MTLBuffer> from) {
    id<MTLBuffer> to = [device_ newBufferWithLength:[from length]
                                            options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, from, to);
    const auto values = Wide(net_.type, [to contents], [from length] / BytesOf(net_.type));
    [to release];
    return values;
  }

  // Milliseconds on the device.
  double Forward() {
    return Timed([&](id<MTLComputeCommandEncoder> encoder) {
      Pack(encoder, false);
      params_.first = 0;
      params_.rows = uint32_t(net_.batch);
      [encoder setComputePipelineState:forward_];
      Set(encoder, {x, packed_, biases_, outputs});
      Groups(encoder, MLP_GROUP_ROWS(net_.sizes.width));
    });
  }
  double Gradient() {
    return Timed([&](id<MTLComputeCommandEncoder> encoder) {
      Pack(encoder, true);
      const MlpSizes s = net_.sizes;
      params_.adds = 0;
      if (in_one_piece_) {
        params_.first = 0;
        params_.rows = uint32_t(net_.batch);
        [encoder setComputePipelineState:gradient_];
        Set(encoder, {gradients, x, packed_, parts_, d_x});
        constexpr int kThreads = 32 * MLP_GRADIENT_SIMDGROUPS;
        Threads(encoder, kThreads * int64_t(n_parts_), 1, 1, kThreads);
        Sum(encoder);
        return;
      }
      for (params_.first = 0; params_.first < net_.batch; params_.first += params_.chunk) {
        params_.rows = uint32_t(std::min(params_.chunk, net_.batch - params_.first));
        [encoder setComputePipelineState:backward_];
        Set(encoder, {gradients, x, packed_, biases_, scratch_, d_x});
        Groups(encoder, MLP_BACKWARD_ROWS);
        for (uint32_t l = 0; l < s.n_layers; ++l) {
          const int64_t splits = Pieces(params_.rows, params_.split);
          params_.layer = l;
          params_.first_row = 0;
          [encoder setComputePipelineState:weights_of_];
          Set(encoder, {x, scratch_, parts_});
          Threads(encoder, 32 * Pieces(mlp_rows(s, l), MLP_TILE_ROWS),
                  Pieces(mlp_columns(s, l), MLP_TILE_COLUMNS), splits, 32);
          if (!s.use_bias) continue;
          params_.first_row = mlp_rows(s, l);
          [encoder setComputePipelineState:biases_of_];
          Set(encoder, {x, scratch_, parts_});
          Threads(encoder, 1, Pieces(mlp_columns(s, l), MLP_PANEL), splits, 1);
        }
        params_.adds = 1;
      }
      Sum(encoder);
    });
  }

  id<MTLBuffer> x, gradients, weights, outputs, d_x, d_weights;

 private:
  id<MTLComputePipelineState> Make(id<MTLLibrary> library, const std::string& name) {
    MTLFunctionConstantValues* constants = [[MTLFunctionConstantValues new] autorelease];
    [constants setConstantValue:&net_.activation type:MTLDataTypeUInt atIndex:0];
    [constants setConstantValue:&net_.output_activation type:MTLDataTypeUInt atIndex:1];
    [constants setConstantValue:&net_.sizes.inputs type:MTLDataTypeUInt atIndex:2];
    [constants setConstantValue:&net_.sizes.outputs type:MTLDataTypeUInt atIndex:3];
    [constants setConstantValue:&net_.sizes.n_layers type:MTLDataTypeUInt atIndex:4];
    return metal_ops::Pipeline(library, name, constants);
  }
  id<MTLBuffer> Buffer(int64_t n, int64_t bytes) {
    return [device_ newBufferWithLength:NSUInteger(n * bytes)
                                options:MTLResourceStorageModePrivate];
  }
  void Sum(id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:sum_];
    Set(encoder, {parts_, d_weights});
    [encoder setBytes:&n_parts_ length:4 atIndex:3];
    [encoder dispatchThreads:MTLSizeMake(NSUInteger(32 * Pieces(params_.n_weights, 32)),
                                         MLP_SUM_SIMDGROUPS, 1)
        threadsPerThreadgroup:MTLSizeMake(32, MLP_SUM_SIMDGROUPS, 1)];
  }
  void Pack(id<MTLComputeCommandEncoder> encoder, bool transposes) {
    [encoder setComputePipelineState:pack_];
    Set(encoder, {weights, packed_, biases_});
    [encoder dispatchThreads:MTLSizeMake(128, 128, net_.sizes.n_layers * (transposes ? 2 : 1))
        threadsPerThreadgroup:MTLSizeMake(128, 1, 1)];
  }
  // Buffers from index 0 on, and the parameters behind them.
  void Set(id<MTLComputeCommandEncoder> encoder, const std::vector<id<MTLBuffer>>& buffers) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      [encoder setBuffer:buffers[i] offset:0 atIndex:i];
    }
    [encoder setBytes:&params_ length:sizeof params_ atIndex:buffers.size()];
  }
  void Threads(id<MTLComputeCommandEncoder> encoder, int64_t x, int64_t y, int64_t z,
               NSUInteger group) {
    [encoder dispatchThreads:MTLSizeMake(NSUInteger(x), NSUInteger(y), NSUInteger(z))
        threadsPerThreadgroup:MTLSizeMake(group, 1, 1)];
  }
  void Groups(id<MTLComputeCommandEncoder> encoder, int64_t rows) {
    Threads(encoder, 32 * Pieces(params_.rows, rows), 1, 1, 128);
  }
  template <typename Encode>
  double Timed(const Encode& encode) {
    id<MTLCommandBuffer> commands = [queue_ commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    encode(encoder);
    [encoder endEncoding];
    return Finish(commands, net_.type);
  }

  const Net net_;
  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  id<MTLComputePipelineState> pack_, forward_, backward_, weights_of_, biases_of_, sum_, gradient_;
  bool in_one_piece_ = false;
  id<MTLBuffer> packed_, biases_, scratch_, parts_;
  MlpParams params_;
  uint32_t n_parts_;
};

void Fill(Run& run, const Net& net) {
  const MlpSizes s = net.sizes;
  std::vector<float> x(size_t(net.batch) * s.inputs), g(size_t(net.batch) * s.outputs),
      w(mlp_matrix(s, s.n_layers));
  for (float& v : x) v = Uniform();
  for (float& v : g) v = Uniform();
  for (float& v : w) v = Uniform() * 1.7f / sqrtf(float(s.width));
  run.Write(run.x, x);
  run.Write(run.gradients, g);
  run.Write(run.weights, w);
}

// All types and widths, or one of each.
int Check(id<MTLLibrary> gpu, id<MTLLibrary> cpu, const char* only_type, uint32_t only_width) {
  int count = 0, bad = 0;
  for (const char* type : {"float", "half", "bfloat"}) {
    for (uint32_t width : {16u, 32u, 64u, 128u}) {
      if (only_type && (strcmp(type, only_type) || width != only_width)) continue;
      for (uint32_t odd = 0; odd < 5; ++odd) {
        @autoreleasepool {
          const MlpSizes s = {odd == 1 || odd == 4 ? std::min(19u, width) : std::min(32u, width),
                              width,
                              odd == 1 || odd == 4 ? 3u
                              : odd == 2           ? 128u
                                                   : 16u,
                              odd == 2   ? 9u
                              : odd == 3 ? 5u
                              : odd == 4 ? 2u
                                         : 3u,
                              uint32_t(odd == 1 || odd == 2)};
          const uint32_t act[] = {MLP_SQUAREPLUS, MLP_SIGMOID, MLP_NONE};
          const Net net = {type, s, act[odd % 3], act[(odd + 1) % 3],
                           odd ? odd == 3 ? 5001 : 333 : 512};
          Run a(cpu, net), b(gpu, net);
          Fill(a, net);
          b.Write(b.x, a.Read(a.x));
          b.Write(b.gradients, a.Read(a.gradients));
          b.Write(b.weights, a.Read(a.weights));
          for (Run* run : {&a, &b}) {
            run->Forward();
            run->Gradient();
          }
          const double errors[] = {RelativeError(a.Read(a.outputs), b.Read(b.outputs)),
                                   RelativeError(a.Read(a.d_x), b.Read(b.d_x)),
                                   RelativeError(a.Read(a.d_weights), b.Read(b.d_weights))};
          // Sums in another order, and where that rounds a value to its neighbour.
          const double allowed = !strcmp(type, "float")  ? 1e-5
                                 : !strcmp(type, "half") ? 2e-3
                                                         : 2e-2;
          for (const double error : errors) {
            ++count;
            if (error <= allowed) continue;
            ++bad;
            printf("%s width %u case %u: errors %.2e %.2e %.2e\n", type, width, odd, errors[0],
                   errors[1], errors[2]);
            break;
          }
        }
      }
    }
  }
  printf("%d results compared with the CPU device, %d networks differ\n", count, bad);
  return bad != 0;
}

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc < 2) {
      fprintf(stderr, "usage: fused_mlp LIBRARY [--check [TYPE WIDTH] | WIDTH...]\n");
      return 2;
    }
    const auto [gpu, cpu] = metal_ops::Libraries(argv[1]);
    if (argc > 2 && !strcmp(argv[2], "--check")) {
      return argc > 4 ? Check(gpu, cpu, argv[3], uint32_t(atoi(argv[4])))
                      : Check(gpu, cpu, nullptr, 0);
    }
    std::vector<uint32_t> widths;
    for (int i = 2; i < argc; ++i) widths.push_back(uint32_t(atoi(argv[i])));
    if (widths.empty()) widths = {64};
    const char* log2 = getenv("LOG2_BATCH");
    for (const uint32_t width : widths) {
      const char* only = getenv("TYPE");
      for (const char* type : {"half", "bfloat"}) {
        if (only && strcmp(only, type)) continue;
        @autoreleasepool {
          // Four hidden layers, as many inputs and outputs as neurons.
          const Net net = {type,
                           {width, width, width, 5, 0},
                           MLP_RELU,
                           MLP_NONE,
                           int64_t{1} << (log2 ? atoi(log2) : 20)};
          Run run(gpu, net);
          Fill(run, net);
          std::vector<double> forward, gradient;
          for (int i = -3; i < 31; ++i) {
            const double f = run.Forward(), g = run.Gradient();
            if (i < 0) continue;
            forward.push_back(f);
            gradient.push_back(g);
          }
          const double f = Median(forward), g = Median(gradient);
          const double flop = 2.0 * double(net.batch) * 5 * width * width;
          printf("%-6s width %3u, 4 hidden, %lld rows: forward %.4f ms, %.1f TFLOP/s; gradient "
                 "%.4f ms; "
                 "both %.1f TFLOP/s\n",
                 type, width, (long long)net.batch, f, flop / f * 1e-9, g,
                 3 * flop / (f + g) * 1e-9);
          fflush(stdout);
        }
      }
    }
  }
  return 0;
}
