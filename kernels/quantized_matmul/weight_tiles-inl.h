// Products of many rows with weights that are unpacked for all of them: a few outputs' weights at a
// time, in the cache. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_QUANTIZED_MATMUL_WEIGHT_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_QUANTIZED_MATMUL_WEIGHT_TILES_INL_H_
#undef METAL_OPS_KERNELS_QUANTIZED_MATMUL_WEIGHT_TILES_INL_H_
#else
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_WEIGHT_TILES_INL_H_
#endif

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <vector>

#include "kernels/runtime/op.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// So many of a row's weights are unpacked at a time. Where a byte has two codes, those of low bits
// come first there, then those of high bits, and x is put into that order.
constexpr int64_t kChunk = 1024;
// From a row of unpacked weights to the next one: a power of two would put all of them into the same
// few lines of the cache.
constexpr int64_t kChunkRow = kChunk + 16;
// Rows of x of which a copy is made at a time, and outputs whose weights of a chunk
// stay in the second cache.
constexpr int64_t kPanel = 256, kOutputs = 16;
// Rows and outputs whose sums fill the registers except a few.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int kTileRows = 4, kTileOutputs = 2;
#else
constexpr int kTileRows = 6, kTileOutputs = 4;
#endif
static_assert(kOutputs % kTileOutputs == 0, "");

HWY_INLINE float SumOf(Floats x) {
  return hn::GetLane(hn::SumOfLanes(hn::ScalableTag<float>(), x.v));
}

using VF = hn::Vec<hn::ScalableTag<float>>;

// sums[r][o] += the products of kRows rows of x and kTileOutputs rows of weights, n elements each.
template <int kRows>
HWY_INLINE void AddTile(const float* x, int64_t x_row, const float* weights, int64_t weights_row,
                        int64_t n, float* sums, int64_t sums_row) {
  const hn::ScalableTag<float> df;
  const int64_t lanes = Floats::Lanes();
  VF tile[kRows][kTileOutputs];
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kTileOutputs; ++o) tile[r][o] = hn::Zero(df);
  }
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    VF right[kTileOutputs];
    for (int o = 0; o < kTileOutputs; ++o) right[o] = hn::LoadU(df, weights + o * weights_row + i);
    for (int r = 0; r < kRows; ++r) {
      const auto left = hn::LoadU(df, x + r * x_row + i);
      for (int o = 0; o < kTileOutputs; ++o) tile[r][o] = hn::MulAdd(left, right[o], tile[r][o]);
    }
  }
  HWY_ALIGN float last[kRows][kTileOutputs][HWY_MAX_BYTES / 4];
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kTileOutputs; ++o) hn::Store(tile[r][o], df, last[r][o]);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kTileOutputs; ++o) {
      float sum = SumOf(Floats::Load(last[r][o]));
      for (int64_t j = i; j < n; ++j) sum += x[r * x_row + j] * weights[o * weights_row + j];
      sums[r * sums_row + o] += sum;
    }
  }
}

template <int kRows>
HWY_INLINE void AddTiles(const float* x, int64_t x_row, const float* weights, int64_t n_outputs,
                         int64_t n, float* sums) {
  for (int64_t o = 0; o < n_outputs; o += kTileOutputs) {
    AddTile<kRows>(x, x_row, weights + o * kChunkRow, kChunkRow, n, sums + o, kOutputs);
  }
}

// For n_rows rows of x, x_row floats apart, from row `first_row` of y on. `unpacker()` makes a
// thread's function for unpacking: it is called with an output, the first of its weights, how many,
// and where to.
template <typename Unpacker>
void ManyRows(CpuCall& call, int64_t outputs, int64_t inputs, int64_t first_row, int64_t n_rows,
              const float* x, int64_t x_row, const Unpacker& unpacker) {
  const int64_t blocks = (outputs + kOutputs - 1) / kOutputs;
  call.ParallelFor(blocks, inputs * kOutputs * (n_rows + 2) / 8, [&](int64_t begin, int64_t end) {
    auto unpack = unpacker();
    const hwy::AlignedFreeUniquePtr<float[]> weights =
        hwy::AllocateAligned<float>(kOutputs * kChunkRow);
    std::fill_n(weights.get(), kOutputs * kChunkRow, 0.0f);
    std::vector<float> sums(n_rows * kOutputs);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t output = block * kOutputs, n = std::min(kOutputs, outputs - output);
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t at = 0; at < inputs; at += kChunk) {
        const int64_t terms = std::min(kChunk, inputs - at);
        for (int64_t o = 0; o < n; ++o) {
          unpack(output + o, at, terms, weights.get() + o * kChunkRow);
        }
        // The part of a tile beyond the outputs is computed from old weights, and not read.
        int64_t row = 0;
        for (; row + kTileRows <= n_rows; row += kTileRows) {
          AddTiles<kTileRows>(x + row * x_row + at, x_row, weights.get(), n, terms,
                              sums.data() + row * kOutputs);
        }
        for (; row < n_rows; ++row) {
          AddTiles<1>(x + row * x_row + at, x_row, weights.get(), n, terms,
                      sums.data() + row * kOutputs);
        }
      }
      for (int64_t row = 0; row < n_rows; ++row) {
        call.Store(0, (first_row + row) * outputs + output, n, sums.data() + row * kOutputs);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_WEIGHT_TILES_INL_H_
