// FrequencyEncode and FrequencyEncodeGrad on the CPU: sine and cosine of a vector of points at a
// time, written row by row. A point is done by one thread: deterministic.

#include <algorithm>
#include <vector>

#include "kernels/frequency_encode/frequency_encode_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/frequency_encode/frequency_encode_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/frequency_encode/frequency_encode_formula.h"

// A vector of points is worked on at a time: their coordinates as they lie in memory, kDims
// vectors, and each block of the encoding (x, sin w_0 x, ...) in the same order. Rows of the
// encoding are put together from pieces of kDims floats. kDims = 0: known at run time.
template <int kDims>
class Tile {
 public:
  explicit Tile(const FrequencyEncodeParams& p)
      : p_(p),
        n_dims_(kDims > 0 ? kDims : p.n_dims),
        n_blocks_(2 * p.n_frequencies + p.include_input),
        size_(Floats::Lanes() * n_dims_),
        x_(size_),
        // Where there is no column, still with an address.
        blocks_(size_ * std::max<int64_t>(n_blocks_, 1)),
        rows_(size_ * n_blocks_) {}

  int64_t n_points() const { return Floats::Lanes(); }

  void Encode(const float* inputs, int64_t i, int64_t n, const MutableFloatArray& outputs) {
    const float* const points = Points(inputs, i, n);
    for (int64_t at = 0; at < size_; at += Floats::Lanes()) {
      const Floats x = Floats::Load(points + at);
      float* to = blocks_.data() + at;
      if (p_.include_input) {
        x.Store(to);
        to += size_;
      }
      auto u = first_turns(p_, x);
      for (uint32_t k = 0; k < p_.n_frequencies; ++k, u = twice(u), to += 2 * size_) {
        const auto here = wave(u);
        here.sine.Store(to);
        here.cosine.Store(to + size_);
      }
    }
    const int64_t width = n_blocks_ * n_dims_;
    float* const rows = outputs.Piece(i * width, rows_.data());
    for (int64_t p = 0; p < n; ++p) {
      float* row = rows + p * width;
      const float* from = blocks_.data() + p * n_dims_;
      for (int64_t b = 0; b < n_blocks_; ++b, row += n_dims_, from += size_) Copy(from, row);
    }
    outputs.Store(i * width, n * width, rows);
  }

  void Differentiate(const FloatArray& d_outputs, const float* inputs, int64_t i, int64_t n,
                     float* to) {
    const int64_t width = n_blocks_ * n_dims_;
    const float* const rows = d_outputs.Read(i * width, n * width, rows_.data());
    for (int64_t p = 0; p < n; ++p) {
      const float* row = rows + p * width;
      float* block = blocks_.data() + p * n_dims_;
      for (int64_t b = 0; b < n_blocks_; ++b, row += n_dims_, block += size_) Copy(row, block);
    }
    const float* const points = Points(inputs, i, n);
    float* const result = n < n_points() ? x_.data() : to + i * n_dims_;
    for (int64_t at = 0; at < size_; at += Floats::Lanes()) {
      const float* from = blocks_.data() + at;
      Floats sum = 0.0f, slope = p_.slope;
      if (p_.include_input) {
        sum = Floats::Load(from);
        from += size_;
      }
      auto u = first_turns(p_, Floats::Load(points + at));
      for (uint32_t k = 0; k < p_.n_frequencies; ++k, u = twice(u), from += 2 * size_) {
        sum = fma(slope, along_wave(wave(u), Floats::Load(from), Floats::Load(from + size_)), sum);
        slope = slope + slope;
      }
      sum.Store(result + at);
    }
    if (n < n_points()) std::copy_n(result, n * n_dims_, to + i * n_dims_);
  }

 private:
  // Points [i, i + n), followed by padding that may be read in their place.
  const float* Points(const float* inputs, int64_t i, int64_t n) {
    if (n == n_points()) return inputs + i * n_dims_;
    std::fill(x_.begin(), x_.end(), 0.0f);
    std::copy_n(inputs + i * n_dims_, n * n_dims_, x_.begin());
    return x_.data();
  }

  void Copy(const float* from, float* to) const {
    for (int64_t d = 0; d < (kDims > 0 ? kDims : n_dims_); ++d) to[d] = from[d];
  }

  const FrequencyEncodeParams& p_;
  const int64_t n_dims_, n_blocks_, size_;
  std::vector<float> x_, blocks_, rows_;
};

template <int kDims>
void EncodeTiles(CpuCall& call, const FrequencyEncodeParams& p, int64_t begin, int64_t end) {
  Tile<kDims> tile(p);
  for (int64_t i = begin; i < end; i += tile.n_points()) {
    tile.Encode(call.in<float>(0), i, std::min(tile.n_points(), end - i), call.float_out(0));
  }
}

template <int kDims>
void DifferentiateTiles(CpuCall& call, const FrequencyEncodeParams& p, int64_t begin, int64_t end) {
  Tile<kDims> tile(p);
  for (int64_t i = begin; i < end; i += tile.n_points()) {
    tile.Differentiate(call.floats(0), call.in<float>(1), i, std::min(tile.n_points(), end - i),
                       call.out<float>(0));
  }
}

using TilesFn = void (*)(CpuCall&, const FrequencyEncodeParams&, int64_t, int64_t);

void ForDims(CpuCall& call, TilesFn of_two, TilesFn of_three, TilesFn of_any) {
  if (call.outputs[0].n_elements == 0) return;
  const FrequencyEncodeParams params = MakeFrequencyEncodeParams(call);
  const TilesFn run = params.n_dims == 3 ? of_three : params.n_dims == 2 ? of_two : of_any;
  const int64_t cycles = 5 + call.Size("dims") * FrequencyColumns(call) * 3;
  call.ParallelFor(call.Size("points"), cycles,
                   [&](int64_t begin, int64_t end) { run(call, params, begin, end); });
}

void FrequencyEncode(CpuCall& call) {
  ForDims(call, EncodeTiles<2>, EncodeTiles<3>, EncodeTiles<0>);
}

void FrequencyEncodeGrad(CpuCall& call) {
  ForDims(call, DifferentiateTiles<2>, DifferentiateTiles<3>, DifferentiateTiles<0>);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("FrequencyEncode", FrequencyEncode);
SIMD_KERNEL("FrequencyEncodeGrad", FrequencyEncodeGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
