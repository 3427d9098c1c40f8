// Attention on a GPU through the Metal API: results against sums in double, and the device's own times, for the shaders
// and sizes that the lines of a file say. `attention LIBRARY SPEC [cpu]`; attention_spec.py writes such files.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/metal_program.h"
#include "kernels/attention/attention_params.h"

namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// `groups`, with splits; or `warpgroups`, with how many, keys of a step and steps in memory, whether
// the shader is made for neither masks nor biases, and whether who is the last joins the parts, too.
struct Line {
  std::string kind, name, type;
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, size = 0;
  int causal = 0;
  std::vector<int64_t> numbers;
};

class Bench {
 public:
  explicit Bench(id<MTLLibrary> library) : library_(library), device_([library device]) {
    queue_ = [device_ newCommandQueue];
  }

  void Run(const Line& line) {
    is_half_ = line.type == "half";
    const int64_t b = line.batch, q_rows = b * line.heads * line.queries;
    const int64_t kv = b * line.kv_heads * line.keys * line.size, of_q = q_rows * line.size;
    // Calls take turns with keys and values, which caches have forgotten by then.
    const int64_t sets = std::clamp<int64_t>((int64_t{200} << 20) / (4 * kv), 1, 64);
    Fill(of_q + sets * 2 * kv);
    id<MTLBuffer> out = Private(2 * of_q), sums = Private(4 * q_rows);
    AttentionParams p = {};
    p.batch = uint32_t(b);
    p.heads = uint32_t(line.heads);
    p.kv_heads = uint32_t(line.kv_heads);
    p.queries = uint32_t(line.queries);
    p.keys = uint32_t(line.keys);
    p.size = p.value_size = uint32_t(line.size);
    p.left = -1;
    p.right = line.causal ? 0 : -1;
    p.scale = float(1 / std::sqrt(double(line.size)));
    const AttentionParams asked = p;
    // As the host has it: the heads of one query that share keys are rows.
    if (line.queries == 1) {
      p.queries = p.heads / p.kv_heads;
      p.heads = p.kv_heads;
      p.right = -1;
    }
    const auto& n = line.numbers;
    const bool four = line.kind == "warpgroups";
    const uint32_t splits = uint32_t(n[0]);
    const bool last_joins = splits > 1 && (n.size() < 6 || n[5] != 0);
    uint32_t launches = 0;
    id<MTLBuffer> parts = Private(4 * std::max<int64_t>(splits, 1) * of_q);
    id<MTLBuffer> part_sums = Private(4 * std::max<int64_t>(splits, 1) * q_rows);
    id<MTLBuffer> counters = Private(4 * q_rows);
    id<MTLComputePipelineState> pipeline = Made(line.name, four, n.size() < 5 || n[4] != 0),
                                join = nil;
    if (splits > 1 && !last_joins) join = Made("attention_join_" + line.type, false);
    const auto encode = [&](id<MTLComputeCommandEncoder> encoder, int call) {
      [encoder setComputePipelineState:pipeline];
      const int64_t at = of_q + call % sets * 2 * kv;
      [encoder setBuffer:pool_ offset:0 atIndex:0];
      [encoder setBuffer:pool_ offset:NSUInteger(2 * at) atIndex:1];
      [encoder setBuffer:pool_ offset:NSUInteger(2 * (at + kv)) atIndex:2];
      for (NSUInteger i = 3; i < 7; ++i) [encoder setBuffer:pool_ offset:0 atIndex:i];
      [encoder setBuffer:out offset:0 atIndex:7];
      [encoder setBuffer:sums offset:0 atIndex:8];
      [encoder setBuffer:parts offset:0 atIndex:9];
      [encoder setBuffer:part_sums offset:0 atIndex:10];
      [encoder setBytes:&p length:sizeof p atIndex:11];
      // As the host has them: kernels/runtime/counters.h.
      const AttentionSplits of_call = {splits, last_joins ? ++launches << 11 : 0};
      [encoder setBytes:&of_call length:sizeof of_call atIndex:12];
      [encoder setBuffer:counters offset:0 atIndex:13];
      if (four) {
        [encoder setThreadgroupMemoryLength:NSUInteger(ATTENTION_WARPGROUP_BYTES(
                                                line.size <= 64 ? 64 : 128, n[1], n[2], n[3]))
                                    atIndex:0];
        [encoder dispatchThreadgroups:MTLSizeMake(NSUInteger(Pieces(p.queries, 64 * n[1])),
                                                  NSUInteger(p.heads), NSUInteger(b * splits))
                threadsPerThreadgroup:MTLSizeMake(NSUInteger(128 * n[1]), 1, 1)];
      } else {
        [encoder dispatchThreads:MTLSizeMake(
                                     NSUInteger(32 * Pieces(p.queries, ATTENTION_GROUP_ROWS)),
                                     NSUInteger(p.heads), NSUInteger(b * splits))
            threadsPerThreadgroup:MTLSizeMake(ATTENTION_GROUP_THREADS, 1, 1)];
      }
      if (!join) return;
      [encoder setComputePipelineState:join];
      [encoder setBuffer:parts offset:0 atIndex:0];
      [encoder setBuffer:part_sums offset:0 atIndex:1];
      [encoder setBuffer:out offset:0 atIndex:2];
      [encoder setBuffer:sums offset:0 atIndex:3];
      [encoder setBytes:&p length:sizeof p atIndex:4];
      [encoder setBytes:&of_call length:sizeof of_call atIndex:5];
      [encoder dispatchThreads:MTLSizeMake(32, NSUInteger(line.heads * line.queries), NSUInteger(b))
          threadsPerThreadgroup:MTLSizeMake(32, 4, 1)];
    };
    metal_ops::Poison(queue_, out);
    double flop = 4.0 * double(q_rows) * double(line.keys) * double(line.size);
    if (line.causal && line.queries == line.keys) flop /= 2;
    const int calls = flop > 2e10 ? 8 : int(std::max<int64_t>(sets, 16));
    const std::vector<double> times = metal_ops::CallTimes(queue_, line.name, calls, 9, encode);
    const double ms = times[times.size() / 2];
    const double error = Error(line, asked, out, of_q + (calls - 1) % sets * 2 * kv, kv);
    const double allowed = is_half_ ? 2e-3 : 1.6e-2;
    printf(
        "%-34s %3lld x %3lld/%lld x %5lld x %6lld x %3lld %s  %.4f ms (%.4f to %.4f)  %6.1f TFLOP/s"
        "  %5.2f TB/s of keys and values  error %.1e%s\n",
        line.name.c_str(), (long long)b, (long long)line.heads, (long long)line.kv_heads,
        (long long)line.queries, (long long)line.keys, (long long)line.size,
        line.causal ? "causal" : "all", ms, times.front(), times.back(), flop / ms * 1e-9,
        4.0 * double(kv) / ms * 1e-9, error, error <= allowed ? "" : "  WRONG");
    fflush(stdout);
    for (id<MTLBuffer> buffer : {out, sums, parts, part_sums, counters}) [buffer release];
  }

 private:
  id<MTLBuffer> Private(int64_t bytes) { return metal_ops::Private(device_, bytes); }
  id<MTLComputePipelineState> Made(const std::string& name, bool constants, bool plain = true) {
    if (!constants) return metal_ops::Pipeline(library_, name);
    MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
    [values setConstantValue:&plain type:MTLDataTypeBool atIndex:0];
    return metal_ops::Pipeline(library_, name, values);
  }
  double At(int64_t i) const { return Value(host_[size_t(i)]); }
  double Value(uint16_t bits) const {
    if (is_half_) {
      _Float16 value;
      memcpy(&value, &bits, 2);
      return double(value);
    }
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
  // Numbers from -1 to 1, those of queries and keys twice that: scores that differ.
  void Fill(int64_t elements) {
    if (int64_t(host_.size()) >= elements && filled_half_ == is_half_) return;
    filled_half_ = is_half_;
    host_.resize(size_t(elements));
    uint32_t state = 7;
    for (uint16_t& to : host_) {
      state = state * 1664525u + 1013904223u;
      const float value = float(state >> 8) * (4.0f / (1 << 24)) - 2.0f;
      to = metal_ops::TwoByteBits(is_half_, value);
    }
    [pool_ release];
    pool_ = Private(2 * elements);
    id<MTLBuffer> from = [device_ newBufferWithBytes:host_.data()
                                              length:NSUInteger(2 * elements)
                                             options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, from, pool_);
    [from release];
  }
  // Over 40 queries, the largest error by the largest value; 1e30 where anything was not written.
  double Error(const Line& line, const AttentionParams& p, id<MTLBuffer> out, int64_t k_at,
               int64_t kv) {
    std::vector<uint16_t> got([out length] / 2);
    id<MTLBuffer> to = [device_ newBufferWithLength:[out length]
                                            options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, out, to);
    memcpy(got.data(), [to contents], [out length]);
    [to release];
    double worst = 0, most = 0;
    for (uint16_t bits : got) {
      if (Value(bits) != Value(bits)) return 1e30;
    }
    uint32_t state = 3;
    const int64_t rows = line.batch * line.heads * line.queries, size = line.size;
    std::vector<double> weights(size_t(line.keys)), sum;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525u + 1013904223u;
      const int64_t row = i == 0 ? rows - 1 : int64_t(state >> 8) % rows;
      const int64_t head = row / line.queries % line.heads, batch = row / line.queries / line.heads;
      const int64_t key_row =
          (batch * line.kv_heads + head / (line.heads / line.kv_heads)) * line.keys;
      const AttentionKeys seen = attention_keys(p, line.keys, row % line.queries);
      double high = -1e300, total = 0;
      for (int64_t k = seen.first; k < seen.last; ++k) {
        double score = 0;
        for (int64_t j = 0; j < size; ++j) {
          score += At(row * size + j) * At(k_at + (key_row + k) * size + j);
        }
        weights[size_t(k)] = score * p.scale;
        high = std::max(high, weights[size_t(k)]);
      }
      sum.assign(size_t(size), 0);
      for (int64_t k = seen.first; k < seen.last; ++k) {
        const double w = exp(weights[size_t(k)] - high);
        total += w;
        for (int64_t j = 0; j < size; ++j) {
          sum[size_t(j)] += w * At(k_at + kv + (key_row + k) * size + j);
        }
      }
      for (int64_t j = 0; j < size; ++j) {
        const double expected = sum[size_t(j)] / total;
        most = std::max(most, fabs(expected));
        worst = std::max(worst, fabs(expected - Value(got[size_t(row * size + j)])));
      }
    }
    return worst / most;
  }

  id<MTLLibrary> library_;
  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  id<MTLBuffer> pool_ = nil;
  std::vector<uint16_t> host_;
  bool is_half_ = true, filled_half_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc < 3) {
      fprintf(stderr, "usage: attention LIBRARY SPEC [cpu]\n");
      return 2;
    }
    const auto [gpu, cpu] = metal_ops::Libraries(argv[1]);
    Bench bench(argc > 3 ? cpu : gpu);
    metal_ops::ForEachLine(argv[2], [&](std::istringstream& words) {
      Line line;
      words >> line.kind >> line.name >> line.type >> line.batch >> line.heads >> line.kv_heads >>
          line.queries >> line.keys >> line.size >> line.causal;
      for (int64_t number; words >> number;) line.numbers.push_back(number);
      bench.Run(line);
    });
  }
  return 0;
}
