// Attention's gradients on a GPU through the Metal API: results against sums in double, and the device's own times, for
// the sizes and shaders that the lines of a file say: of keys and of queries, or of both in turns. `attention_gradient
// LIBRARY SPEC`; attention_gradient_spec.py writes such files.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/metal_program.h"
#include "kernels/attention/attention_params.h"

namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// A shader, by its name, how many rows it looks at together and of how many such steps.
struct Way {
  std::string name;
  int64_t rows = 0, stages = 0;
};
struct Line {
  std::string type;
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, size = 0;
  int causal = 0;
  Way of_keys,
      of_queries;  // in turns: of both, and the kernel that makes the queries' gradients of their sums
  bool turns = false;
};

class Bench {
 public:
  explicit Bench(id<MTLLibrary> library) : library_(library), device_([library device]) {
    queue_ = [device_ newCommandQueue];
  }

  void Run(const Line& line) {
    is_half_ = line.type == "half";
    size_ = line.size <= 64 ? 64 : 128;
    const int64_t b = line.batch, q_rows = b * line.heads * line.queries;
    kv_ = b * line.kv_heads * line.keys * line.size, of_q_ = q_rows * line.size;
    Fill(2 * of_q_ + 2 * kv_);
    outputs_ = Private(2 * of_q_), sums_ = Private(4 * q_rows);
    d_q_ = Private(2 * of_q_), d_k_ = Private(2 * kv_), d_v_ = Private(2 * kv_);
    const int64_t padded =
        Pieces(line.queries, ATTENTION_GRADIENT_PIECE) * ATTENTION_GRADIENT_PIECE;
    pairs_ = Private(8 * b * line.heads * padded);
    p_ = {};
    p_.batch = uint32_t(b);
    p_.heads = uint32_t(line.heads);
    p_.kv_heads = uint32_t(line.kv_heads);
    p_.queries = uint32_t(line.queries);
    p_.keys = uint32_t(line.keys);
    p_.size = p_.value_size = uint32_t(line.size);
    p_.left = -1;
    p_.right = line.causal ? 0 : -1;
    p_.scale = float(1 / std::sqrt(double(line.size)));
    Forward(line);
    const std::string means_name =
        "attention_warpgroups_means_" + line.type + "_" + std::to_string(size_);
    id<MTLComputePipelineState> means = metal_ops::Pipeline(library_, means_name),
                                of_keys = Made(line.of_keys.name),
                                of_queries = Made(line.of_queries.name, !line.turns);
    const int64_t pieces = line.turns ? padded / line.of_keys.rows : 0;
    const uint32_t n_turns = line.turns ? uint32_t(pieces * p_.heads * p_.batch + 1) : 0;
    id<MTLBuffer> turns = Private(4 * n_turns),
                  q_sums = Private(line.turns ? 4 * padded * size_ * p_.heads * p_.batch : 0);
    const auto encode_means = [&](id<MTLComputeCommandEncoder> encoder, int) {
      [encoder setComputePipelineState:means];
      id<MTLBuffer> buffers[] = {outputs_, pool_, sums_, pairs_, turns};
      for (NSUInteger i = 0; i < 5; ++i) {
        [encoder setBuffer:buffers[i] offset:i == 1 ? NSUInteger(2 * of_q_) : 0 atIndex:i];
      }
      [encoder setBytes:&n_turns length:sizeof n_turns atIndex:5];
      [encoder setBytes:&p_ length:sizeof p_ atIndex:6];
      [encoder dispatchThreads:MTLSizeMake(NSUInteger(padded * size_ / 8), p_.heads, p_.batch)
          threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
    };
    const auto encode_keys = [&](id<MTLComputeCommandEncoder> encoder, int call) {
      // Turns begin anew.
      if (line.turns) encode_means(encoder, call);
      [encoder setComputePipelineState:of_keys];
      Inputs(encoder);
      [encoder setBuffer:d_k_ offset:0 atIndex:9];
      [encoder setBuffer:d_v_ offset:0 atIndex:10];
      if (line.turns) {
        [encoder setBuffer:q_sums offset:0 atIndex:11];
        [encoder setBuffer:turns offset:0 atIndex:12];
        [encoder setBytes:&p_ length:sizeof p_ atIndex:13];
        [encoder setThreadgroupMemoryLength:NSUInteger(ATTENTION_GRADIENT_TURNS_BYTES(
                                                size_, line.of_keys.rows, line.of_keys.stages))
                                    atIndex:0];
        [encoder dispatchThreadgroups:MTLSizeMake(
                                          NSUInteger(Pieces(p_.keys, 128) * p_.kv_heads * p_.batch),
                                          1, 1)
                threadsPerThreadgroup:MTLSizeMake(ATTENTION_GRADIENT_TURNS_THREADS, 1, 1)];
        return;
      }
      [encoder setBytes:&p_ length:sizeof p_ atIndex:11];
      Launch(encoder, p_.keys, p_.kv_heads,
             ATTENTION_GRADIENT_KV_BYTES(size_, line.of_keys.rows, line.of_keys.stages));
    };
    const auto encode_queries = [&](id<MTLComputeCommandEncoder> encoder, int) {
      [encoder setComputePipelineState:of_queries];
      if (line.turns) {
        [encoder setBuffer:q_sums offset:0 atIndex:0];
        [encoder setBuffer:turns offset:0 atIndex:1];
        [encoder setBuffer:d_q_ offset:0 atIndex:2];
        [encoder setBytes:&p_ length:sizeof p_ atIndex:3];
        [encoder dispatchThreadgroups:MTLSizeMake(NSUInteger(pieces), p_.heads, p_.batch)
                threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
        return;
      }
      Inputs(encoder);
      [encoder setBuffer:d_q_ offset:0 atIndex:9];
      [encoder setBytes:&p_ length:sizeof p_ atIndex:10];
      Launch(encoder, p_.queries, p_.heads,
             ATTENTION_GRADIENT_Q_BYTES(size_, line.of_queries.rows, line.of_queries.stages));
    };
    for (id<MTLBuffer> buffer : {d_q_, d_k_, d_v_, pairs_}) metal_ops::Poison(queue_, buffer);
    const int calls = 8;
    const auto all = [&](id<MTLComputeCommandEncoder> encoder, int call) {
      if (!line.turns) encode_means(encoder, call);
      encode_keys(encoder, call);
      encode_queries(encoder, call);
    };
    const std::vector<double> times = metal_ops::CallTimes(queue_, "all", calls, 9, all);
    const bool same = IsSame([&] { metal_ops::CallTimes(queue_, "all", 1, 1, all); });
    double flop = 10.0 * double(q_rows) * double(line.keys) * double(line.size);
    if (line.causal && line.queries == line.keys) flop /= 2;
    const double ms = times[times.size() / 2];
    const double error = Error(line), allowed = is_half_ ? 4e-3 : 3e-2;
    printf("%-6s %3lld x %3lld/%lld x %5lld x %6lld x %3lld %s  %.4f ms (%.4f to %.4f)  %6.1f "
           "TFLOP/s of five "
           "products: means %.4f, queries %.4f (%s), keys %.4f (%s)  error %.1e%s%s\n",
           line.type.c_str(), (long long)b, (long long)line.heads, (long long)line.kv_heads,
           (long long)line.queries, (long long)line.keys, (long long)line.size,
           line.causal ? "causal" : "all", ms, times.front(), times.back(), flop / ms * 1e-9,
           Median("means", calls, encode_means), Median("queries", calls, encode_queries),
           line.of_queries.name.c_str(), Median("keys", calls, encode_keys),
           line.of_keys.name.c_str(), error, error <= allowed ? "" : "  WRONG",
           same ? "" : "  NOT THE SAME AGAIN");
    fflush(stdout);
    for (id<MTLBuffer> buffer : {outputs_, sums_, d_q_, d_k_, d_v_, pairs_, turns, q_sums}) {
      [buffer release];
    }
  }

 private:
  template <typename Encode>
  double Median(const char* what, int calls, const Encode& encode) {
    return metal_ops::Median(metal_ops::CallTimes(queue_, what, calls, 5, encode));
  }
  void Inputs(id<MTLComputeCommandEncoder> encoder) {
    [encoder setBuffer:pool_ offset:0 atIndex:0];
    [encoder setBuffer:pool_ offset:NSUInteger(4 * of_q_) atIndex:1];
    [encoder setBuffer:pool_ offset:NSUInteger(4 * of_q_ + 2 * kv_) atIndex:2];
    for (NSUInteger i = 3; i < 7; ++i) [encoder setBuffer:pool_ offset:0 atIndex:i];
    [encoder setBuffer:pairs_ offset:0 atIndex:7];
    [encoder setBuffer:pool_ offset:NSUInteger(2 * of_q_) atIndex:8];
  }
  void Launch(id<MTLComputeCommandEncoder> encoder, int64_t n, int64_t heads, int64_t bytes) {
    [encoder setThreadgroupMemoryLength:NSUInteger(bytes) atIndex:0];
    [encoder
         dispatchThreadgroups:MTLSizeMake(NSUInteger(Pieces(n, 64)), NSUInteger(heads), p_.batch)
        threadsPerThreadgroup:MTLSizeMake(128, 1, 1)];
  }
  void Forward(const Line& line) {
    id<MTLComputePipelineState> pipeline =
        Made("attention_warpgroups_" + line.type + "_" + std::to_string(size_));
    const AttentionSplits splits = {1, 0};
    const auto four = [](int64_t size, int64_t, int64_t keys, int64_t stages, int64_t) {
      return ATTENTION_WARPGROUP_BYTES(size, 1, keys, stages);
    };
    const int64_t bytes =
        size_ == 64 ? four(64, ATTENTION_WARPGROUPS_64) : four(128, ATTENTION_WARPGROUPS_128);
    metal_ops::CallTimes(queue_, "forward", 1, 1, [&](id<MTLComputeCommandEncoder> encoder, int) {
      [encoder setComputePipelineState:pipeline];
      Inputs(encoder);
      [encoder setBuffer:outputs_ offset:0 atIndex:7];
      for (NSUInteger i = 8; i < 11; ++i) [encoder setBuffer:sums_ offset:0 atIndex:i];
      [encoder setBytes:&p_ length:sizeof p_ atIndex:11];
      [encoder setBytes:&splits length:sizeof splits atIndex:12];
      [encoder setBuffer:pairs_ offset:0 atIndex:13];
      Launch(encoder, p_.queries, p_.heads, bytes);
    });
  }
  id<MTLBuffer> Private(int64_t bytes) { return metal_ops::Private(device_, bytes); }
  id<MTLComputePipelineState> Made(const std::string& name, bool constants = true) {
    if (!constants) return metal_ops::Pipeline(library_, name);
    MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
    const bool plain = true;
    [values setConstantValue:&plain type:MTLDataTypeBool atIndex:0];
    return metal_ops::Pipeline(library_, name, values);
  }
  double Value(uint16_t bits) const { return metal_ops::TwoByteValue(is_half_, bits); }
  // Queries, the gradients of outputs, keys, values: numbers from -2 to 2.
  void Fill(int64_t elements) {
    std::vector<uint16_t> bits(static_cast<size_t>(elements));
    host_.resize(size_t(elements));
    uint32_t state = 7;
    for (size_t i = 0; i < host_.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      const float value = float(state >> 8) * (4.0f / (1 << 24)) - 2.0f;
      bits[i] = metal_ops::TwoByteBits(is_half_, value);
      host_[i] = Value(bits[i]);
    }
    [pool_ release];
    pool_ = Private(2 * elements);
    id<MTLBuffer> from = [device_ newBufferWithBytes:bits.data()
                                              length:NSUInteger(2 * elements)
                                             options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, from, pool_);
    [from release];
  }
  std::vector<uint16_t> Read(id<MTLBuffer> from) {
    std::vector<uint16_t> got([from length] / 2);
    id<MTLBuffer> to = [device_ newBufferWithLength:[from length]
                                            options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, from, to);
    memcpy(got.data(), [to contents], [from length]);
    [to release];
    return got;
  }
  template <typename Again>
  bool IsSame(const Again& again) {
    const std::vector<uint16_t> q = Read(d_q_), k = Read(d_k_), v = Read(d_v_);
    again();
    return q == Read(d_q_) && k == Read(d_k_) && v == Read(d_v_);
  }
  // For some queries and keys of the last head of keys, the largest error by the largest value; 1e30 where anything was
  // not written.
  double Error(const Line& line) {
    const std::vector<uint16_t> got[] = {Read(d_q_), Read(d_k_), Read(d_v_)};
    for (const auto& of : got) {
      for (uint16_t bits : of) {
        if (!std::isfinite(Value(bits))) return 1e30;
      }
    }
    const int64_t n = line.queries, m = line.keys, size = line.size, some = 16;
    const int64_t sharing = line.heads / line.kv_heads, k_head = line.batch * line.kv_heads - 1;
    const double *const k = &host_[size_t(2 * of_q_ + k_head * m * size)], *const v = k + kv_;
    std::vector<double> d_k(size_t(some * size)), d_v = d_k, d_q(size_t(some * size));
    const auto key_at = [&](int64_t i) { return i * (m - 1) / (some - 1); };
    const auto query_at = [&](int64_t i) { return i * (n - 1) / (some - 1); };
    const unsigned workers = 16;
    std::vector<std::vector<double>> parts(workers, std::vector<double>(size_t(2 * some * size)));
    const auto work = [&](unsigned worker) {
      std::vector<double> w(static_cast<size_t>(m)), o(static_cast<size_t>(size));
      for (int64_t row = worker; row < n * sharing; row += workers) {
        const int64_t head =
            (k_head / line.kv_heads) * line.heads + (k_head % line.kv_heads) * sharing + row / n;
        const int64_t query = row % n, at = (head * n + query) * size;
        const double *const q = &host_[size_t(at)], *const d_o = &host_[size_t(of_q_ + at)];
        const AttentionKeys seen = attention_keys(p_, m, query);
        double high = -1e300, total = 0, mean = 0;
        for (int64_t j = seen.first; j < seen.last; ++j) {
          double score = 0;
          for (int64_t e = 0; e < size; ++e) score += q[e] * k[j * size + e];
          w[size_t(j)] = score * p_.scale;
          high = std::max(high, w[size_t(j)]);
        }
        std::fill(o.begin(), o.end(), 0.0);
        for (int64_t j = seen.first; j < seen.last; ++j) {
          total += w[size_t(j)] = exp(w[size_t(j)] - high);
          for (int64_t e = 0; e < size; ++e) o[size_t(e)] += w[size_t(j)] * v[j * size + e];
        }
        for (int64_t e = 0; e < size; ++e) mean += o[size_t(e)] / total * d_o[e];
        const auto of_score = [&](int64_t j) {
          double d = 0;
          for (int64_t e = 0; e < size; ++e) d += d_o[e] * v[j * size + e];
          return w[size_t(j)] / total * (d - mean);
        };
        for (int64_t i = 0; i < some; ++i) {
          const int64_t j = key_at(i);
          if (j < seen.first || j >= seen.last) continue;
          const double d = of_score(j) * p_.scale;
          double* const to = &parts[worker][size_t(2 * i * size)];
          for (int64_t e = 0; e < size; ++e) {
            to[e] += d * q[e];
            to[size + e] += w[size_t(j)] / total * d_o[e];
          }
        }
        for (int64_t i = 0; i < some; ++i) {
          if (row / n != 0 || query_at(i) != query) continue;
          double* const to = &d_q[size_t(i * size)];
          for (int64_t j = seen.first; j < seen.last; ++j) {
            const double d = of_score(j) * p_.scale;
            for (int64_t e = 0; e < size; ++e) to[e] += d * k[j * size + e];
          }
        }
      }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < workers; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
    for (const auto& part : parts) {
      for (int64_t i = 0; i < some * size; ++i) {
        d_k[size_t(i)] += part[size_t(i / size * 2 * size + i % size)];
        d_v[size_t(i)] += part[size_t((i / size * 2 + 1) * size + i % size)];
      }
    }
    const int64_t q_head =
        (k_head / line.kv_heads) * line.heads + (k_head % line.kv_heads) * sharing;
    const std::vector<double>* const expected[] = {&d_q, &d_k, &d_v};
    double error = 0;
    for (int which = 0; which < 3; ++which) {
      double most = 0, worst = 0;
      for (int64_t i = 0; i < some * size; ++i) {
        const int64_t row =
            which == 0 ? q_head * n + query_at(i / size) : k_head * m + key_at(i / size);
        const double right = (*expected[which])[size_t(i)];
        most = std::max(most, fabs(right));
        worst = std::max(worst, fabs(right - Value(got[which][size_t(row * size + i % size)])));
      }
      error = std::max(error, worst / most);
    }
    return error;
  }

  id<MTLLibrary> library_;
  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  id<MTLBuffer> pool_ = nil, outputs_, sums_, d_q_, d_k_, d_v_, pairs_;
  AttentionParams p_;
  std::vector<double> host_;
  int64_t size_ = 0, of_q_ = 0, kv_ = 0;
  bool is_half_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc < 3) {
      fprintf(stderr, "usage: attention_gradient LIBRARY SPEC\n");
      return 2;
    }
    Bench bench(metal_ops::Libraries(argv[1]).gpu);
    std::ifstream spec(argv[2]);
    for (std::string text; std::getline(spec, text);) {
      if (text.empty() || text[0] == '#') continue;
      std::istringstream words(text);
      Line line;
      words >> line.type >> line.batch >> line.heads >> line.kv_heads >> line.queries >>
          line.keys >> line.size >> line.causal;
      for (Way* way : {&line.of_keys, &line.of_queries}) {
        words >> way->name >> way->rows >> way->stages;
      }
      line.turns = line.of_keys.name.find("_turns_") != std::string::npos;
      if (!words) {
        fprintf(stderr, "%s: a line has 14 words, not '%s'\n", argv[2], text.c_str());
        return 2;
      }
      @autoreleasepool {
        bench.Run(line);
      }
    }
  }
  return 0;
}
