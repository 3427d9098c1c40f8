// Products of matrices on a GPU through the Metal API: results against sums in double, and medians of
// the device's own times, for the shaders and sizes that the lines of a file say.
// `products LIBRARY SPEC [cpu]`; products_spec.py writes such files.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/metal_program.h"
#include "kernels/gemm/epilogue_params.h"
#include "kernels/gemm/gemm_blocks_params.h"
#include "kernels/gemm/gemm_few_params.h"
#include "kernels/gemm/gemm_params.h"
#include "kernels/quantized_matmul/quantized_matmul_params.h"

namespace {

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

int64_t BytesOf(const std::string& type) { return type == "float" ? 4 : 2; }

// Random numbers of a type, on the host and on the device. Factors lie in it at several places, so
// that one call after the other reads memory and not the cache.
struct Pool {
  std::vector<char> host;
  id<MTLBuffer> device = nil;
  std::string type;

  double At(int64_t i) const {
    if (type == "float") return reinterpret_cast<const float*>(host.data())[i];
    if (type == "half") return double(reinterpret_cast<const _Float16*>(host.data())[i]);
    const uint32_t bits = uint32_t(reinterpret_cast<const uint16_t*>(host.data())[i]) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
};

class Bench {
 public:
  explicit Bench(id<MTLLibrary> library) : library_(library), device_([library device]) {
    queue_ = [device_ newCommandQueue];
  }

  Pool& PoolOf(const std::string& type, int64_t elements) {
    Pool& pool = pools_[type];
    const int64_t bytes = elements * BytesOf(type);
    if (int64_t(pool.host.size()) >= bytes) return pool;
    pool.type = type;
    pool.host.resize(size_t(bytes));
    uint32_t state = 7;
    for (int64_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      const float value = float(state >> 8) * (2.0f / (1 << 24)) - 1.0f;
      uint32_t bits;
      memcpy(&bits, &value, 4);
      char* to = &pool.host[size_t(i * BytesOf(type))];
      if (type == "float") memcpy(to, &value, 4);
      if (type == "half") *reinterpret_cast<_Float16*>(to) = _Float16(value);
      if (type == "bfloat") *reinterpret_cast<uint16_t*>(to) = uint16_t(bits >> 16);
    }
    [pool.device release];
    pool.device = Private(bytes);
    id<MTLBuffer> from = [device_ newBufferWithBytes:pool.host.data()
                                              length:NSUInteger(bytes)
                                             options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, from, pool.device);
    [from release];
    return pool;
  }

  id<MTLBuffer> Private(int64_t bytes) { return metal_ops::Private(device_, bytes); }
  id<MTLComputePipelineState> Pipeline(const std::string& name, bool constants, bool a_turned,
                                       bool b_turned) {
    if (!constants) return metal_ops::Pipeline(library_, name);
    MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
    const uint32_t none = 0;
    const bool no = false;
    [values setConstantValue:&none type:MTLDataTypeUInt atIndex:0];
    [values setConstantValue:&no type:MTLDataTypeBool atIndex:1];
    [values setConstantValue:&none type:MTLDataTypeUInt atIndex:2];
    [values setConstantValue:&no type:MTLDataTypeBool atIndex:3];
    [values setConstantValue:&a_turned type:MTLDataTypeBool atIndex:4];
    [values setConstantValue:&b_turned type:MTLDataTypeBool atIndex:5];
    return metal_ops::Pipeline(library_, name, values);
  }

  // Milliseconds of one call; see CallTimes().
  template <typename Encode>
  double Timed(const std::string& what, int calls, const Encode& encode) {
    return metal_ops::Median(metal_ops::CallTimes(queue_, what, calls, 7, encode));
  }
  void Poison(id<MTLBuffer> buffer) { metal_ops::Poison(queue_, buffer); }
  // Over some results, the largest error by the largest value.
  template <typename Expected>
  double Error(const std::string& type, id<MTLBuffer> out, int64_t rows, int64_t columns,
               const Expected& expected) {
    Pool got;
    got.type = type;
    got.host.resize([out length]);
    id<MTLBuffer> to = [device_ newBufferWithLength:[out length]
                                            options:MTLResourceStorageModeShared];
    metal_ops::Copy(queue_, out, to);
    memcpy(got.host.data(), [to contents], [out length]);
    [to release];
    double worst = 0, most = 0;
    uint32_t state = 3;
    for (int i = 0; i < 300; ++i) {
      state = state * 1664525u + 1013904223u;
      const int64_t row = i == 0 ? rows - 1 : int64_t(state >> 8) % rows;
      state = state * 1664525u + 1013904223u;
      const int64_t column = i == 0 ? columns - 1 : int64_t(state >> 8) % columns;
      const double e = expected(row, column), g = got.At(row * columns + column);
      most = std::max(most, fabs(e));
      worst = g == g ? std::max(worst, fabs(e - g)) : 1e30;
    }
    // Every element has been written.
    for (int64_t i = 0; i < rows * columns; ++i) {
      if (got.At(i) != got.At(i)) worst = 1e30;
    }
    return worst / most;
  }

  id<MTLLibrary> library_;
  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  std::map<std::string, Pool> pools_;
};

// out = a b of one line: `few`, `blocks`, `warpgroups`, `tiles`, or `threads`, with the sizes that the shader is
// made for.
struct Line {
  std::string kind, name, type;
  int64_t m = 0, k = 0, n = 0;
  int a_turned = 0, b_turned = 0;
  std::vector<int64_t> numbers;
};

void Product(Bench& bench, const Line& line) {
  const int64_t bytes = BytesOf(line.type), m = line.m, k = line.k, n = line.n;
  // Two calls apart, caches have forgotten the data.
  const int64_t sets = std::clamp<int64_t>((int64_t{200} << 20) / (k * n * bytes), 1, 64);
  const int64_t b_at = (m * k + 127) / 128 * 128, b_step = (k * n + 127) / 128 * 128;
  Pool& pool = bench.PoolOf(line.type, b_at + sets * b_step);
  id<MTLBuffer> out = bench.Private(m * n * bytes);
  GemmParams p = {};
  for (uint32_t& size : p.batch) size = 1;
  p.out_h = p.in_h = p.filter_h = p.filter_w = 1;
  p.stride_h = p.stride_w = p.dilation_h = p.dilation_w = 1;
  p.rows = p.out_w = p.in_w = uint32_t(m);
  p.columns = uint32_t(n);
  p.depth = uint32_t(k);
  p.a_x = line.a_turned ? 1 : k;
  p.a_c = line.a_turned ? m : 1;
  p.b_row = line.b_turned ? 1 : n;
  p.b_column = line.b_turned ? k : 1;
  p.out_point = n;
  p.out_column = 1;
  p.out_batch = m * n;
  const bool warpgroups = line.kind == "warpgroups", blocks = line.kind == "blocks" || warpgroups;
  const bool fused = blocks || line.kind == "few";
  id<MTLComputePipelineState> pipeline =
      bench.Pipeline(line.name, fused, line.a_turned, line.b_turned);
  const auto& q = line.numbers;
  MTLSize grid, group;
  NSUInteger memory = 0;
  uint32_t splits = 1;
  if (line.kind == "few") {  // rows, columns of a threadgroup, splits
    splits = uint32_t(q[2]);
    grid = MTLSizeMake(NSUInteger(Pieces(n, q[1])), NSUInteger(Pieces(m, q[0])), 1);
    group = MTLSizeMake(32 * GEMM_FEW_SIMDGROUPS, 1, 1);
  } else if (warpgroups) {  // rows, columns, stages
    grid = MTLSizeMake(NSUInteger(Pieces(m, q[0]) * Pieces(n, q[1])), 1, 1);
    group = MTLSizeMake(NSUInteger(2 * q[0]), 1, 1);
    memory = NSUInteger(GEMM_WARPGROUP_BYTES(q[0], q[1], q[2], bytes));
  } else if (blocks) {  // rows, columns, depth, tiles along rows, along columns, stages, shares
    grid = MTLSizeMake(NSUInteger(Pieces(m, q[0]) * Pieces(n, q[1])), 1, 1);
    group = MTLSizeMake(NSUInteger(q[0] * q[1] * q[6] / (q[3] * q[4] * 4)), 1, 1);
    memory = NSUInteger(GEMM_BLOCK_BYTES(q[0], q[1], q[2], q[5], bytes));
  } else {
    grid = MTLSizeMake(NSUInteger(Pieces(m, GEMM_TILE_ROWS)),
                       NSUInteger(Pieces(n, GEMM_TILE_COLUMNS)), 1);
    group = MTLSizeMake(GEMM_TILE_THREADS, 1, 1);
  }
  const EpilogueParams epilogue = {};
  const auto encode = [&](id<MTLComputeCommandEncoder> encoder, int call) {
    [encoder setComputePipelineState:pipeline];
    [encoder setBuffer:pool.device offset:0 atIndex:0];
    [encoder setBuffer:pool.device
                offset:NSUInteger((b_at + call % sets * b_step) * bytes)
               atIndex:1];
    [encoder setBuffer:out offset:0 atIndex:2];
    [encoder setBytes:&p length:sizeof p atIndex:3];
    // Nothing is fused: the arguments do not matter.
    for (NSUInteger i = 4; fused && i < 9; ++i) {
      [encoder setBuffer:pool.device offset:0 atIndex:i];
    }
    if (fused) [encoder setBytes:&epilogue length:sizeof epilogue atIndex:9];
    if (blocks) [encoder setThreadgroupMemoryLength:memory atIndex:0];
    if (line.kind == "few") [encoder setBytes:&splits length:4 atIndex:10];
    [encoder dispatchThreadgroups:grid threadsPerThreadgroup:group];
  };
  const double flop = 2.0 * double(m) * double(k) * double(n);
  bench.Poison(out);
  const int calls = flop > 2e11 ? 4 : int(std::max<int64_t>(sets, 16));
  const double ms = bench.Timed(line.name, calls, encode);
  const int64_t last = b_at + (calls - 1) % sets * b_step;
  const double error = bench.Error(line.type, out, m, n, [&](int64_t r, int64_t c) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      sum += pool.At(r * p.a_x + i * p.a_c) * pool.At(last + i * p.b_row + c * p.b_column);
    }
    return sum;
  });
  const double allowed = line.type == "float" ? 1e-5 : line.type == "half" ? 1e-3 : 8e-3;
  printf("%-36s %4lld x %lld x %lld %s%s  %.4f ms  %6.1f TFLOP/s  %5.2f TB/s of b  error %.1e%s\n",
         line.name.c_str(), (long long)m, (long long)k, (long long)n, line.a_turned ? "T" : "-",
         line.b_turned ? "T" : "-", ms, flop / ms * 1e-9, double(k * n * bytes) / ms * 1e-9, error,
         error <= allowed ? "" : "  WRONG");
  [out release];
}

// y = x w^T with codes: rows, outputs of a threadgroup, splits, or lanes for quantized_few.
void Quantized(Bench& bench, const Line& line, int bits, int64_t block) {
  const int64_t m = line.m, k = line.k, n = line.n;
  QuantizedParams p = {};
  p.rows = m;
  p.inputs = k;
  p.outputs = n;
  p.bytes = k * bits / 8;
  p.block = block;
  p.groups = p.row_groups = k / block;
  p.use_minima = 1;
  p.middle = float(1 << (bits - 1));
  const int64_t code_bytes = (n * p.bytes + 255) / 256 * 256,
                scale_count = (n * p.groups + 127) / 128 * 128;
  const int64_t sets = std::clamp<int64_t>((int64_t{200} << 20) / code_bytes, 1, 64);
  // Codes are the bytes of random numbers.
  const int64_t x_end = (m * k + 127) / 128 * 128, codes_at = x_end + 2 * scale_count;
  Pool& pool = bench.PoolOf("half", codes_at + sets * code_bytes / 2);
  id<MTLBuffer> out = bench.Private(m * n * 2);
  id<MTLComputePipelineState> pipeline = bench.Pipeline(line.name, false, false, false);
  const auto& q = line.numbers;
  const uint32_t splits = q.size() > 2 ? uint32_t(q[2]) : 1;
  const auto encode = [&](id<MTLComputeCommandEncoder> encoder, int call) {
    [encoder setComputePipelineState:pipeline];
    [encoder setBuffer:pool.device offset:0 atIndex:0];
    [encoder setBuffer:pool.device
                offset:NSUInteger(2 * codes_at + call % sets * code_bytes)
               atIndex:1];
    [encoder setBuffer:pool.device offset:NSUInteger(2 * x_end) atIndex:2];
    [encoder setBuffer:pool.device offset:NSUInteger(2 * (x_end + scale_count)) atIndex:3];
    [encoder setBuffer:out offset:0 atIndex:4];
    [encoder setBytes:&p length:sizeof p atIndex:5];
    if (q.size() > 2) {
      [encoder setBytes:&splits length:4 atIndex:6];
      [encoder dispatchThreadgroups:MTLSizeMake(NSUInteger(Pieces(n, q[1])),
                                                NSUInteger(Pieces(m, q[0])), 1)
              threadsPerThreadgroup:MTLSizeMake(32 * QUANTIZED_SIMDGROUPS, 1, 1)];
    } else {
      [encoder dispatchThreads:MTLSizeMake(32, NSUInteger(n),
                                           NSUInteger(Pieces(m, QUANTIZED_FEW_ROWS)))
          threadsPerThreadgroup:MTLSizeMake(32, 8, 1)];
    }
  };
  bench.Poison(out);
  const int calls = int(std::max<int64_t>(sets, 16));
  const double ms = bench.Timed(line.name, calls, encode);
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(pool.host.data()) + 2 * codes_at +
                         (calls - 1) % sets * code_bytes;
  const double error = bench.Error("half", out, m, n, [&](int64_t r, int64_t c) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const uint8_t byte = codes[c * p.bytes + i * bits / 8];
      const int code = bits == 8 ? byte : byte >> (i % 2 * 4) & 15;
      const int64_t group = c * p.groups + i / block;
      sum += pool.At(r * k + i) *
             (code * pool.At(x_end + group) + pool.At(x_end + scale_count + group));
    }
    return sum;
  });
  printf("%-36s %4lld x %lld x %lld int%d  %.4f ms  %5.2f TB/s of codes  error %.1e%s\n",
         line.name.c_str(), (long long)m, (long long)k, (long long)n, bits, ms,
         double(n * p.bytes) / ms * 1e-9, error, error <= 1e-3 ? "" : "  WRONG");
  [out release];
}

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc < 3) {
      fprintf(stderr, "usage: products LIBRARY SPEC [cpu]\n");
      return 2;
    }
    const auto [gpu, cpu] = metal_ops::Libraries(argv[1]);
    Bench bench(argc > 3 ? cpu : gpu);
    metal_ops::ForEachLine(argv[2], [&](std::istringstream& words) {
      Line line;
      words >> line.kind >> line.name >> line.type >> line.m >> line.k >> line.n >> line.a_turned >>
          line.b_turned;
      for (int64_t number; words >> number;) line.numbers.push_back(number);
      if (line.kind == "int4" || line.kind == "int8") {
        Quantized(bench, line, line.kind == "int4" ? 4 : 8, 64);
      } else {
        Product(bench, line);
      }
      fflush(stdout);
    });
  }
  return 0;
}
