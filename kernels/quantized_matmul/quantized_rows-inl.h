// Rows of quantized weights on the CPU. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROWS_INL_H_
#undef METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROWS_INL_H_
#else
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <vector>

#include "kernels/quantized_matmul/quantized_matmul_call.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// A row's codes and scales are prefetched some rows before: hardware prefetching ends with each page.
// Into the second cache: the first waits for too few lines at a time.
constexpr int64_t kCodesAhead = 8192, kScalesAhead = 1024;
HWY_INLINE void FetchCodes(const uint8_t* from, int64_t ahead = kCodesAhead) {
  __builtin_prefetch(from + ahead, 0, 2);
}
template <typename S>
HWY_INLINE void FetchScales(const S* from, int64_t ahead = kScalesAhead) {
  __builtin_prefetch(from + ahead, 0, 2);
}

// The weights of one row.
struct Row {
  const uint8_t* codes;
  const float *scales, *minima;
  int64_t block;
  float middle;

  float Minimum(int64_t group) const {
    return minima != nullptr ? minima[group] : -middle * scales[group];
  }
};

// Rows of weights, with scales and minima as float32: those of some rows are read at a time, as half
// of a short row's work would be to widen so few.
class Rows {
 public:
  Rows(const CpuCall& call, const QuantizedParams& p, int first)
      : call_(call), p_(p), first_(first) {}

  // Good until the next call, or all of `n` outputs from one on: whether these are read at a time.
  bool Have(int64_t output, int64_t n) {
    if (output + n > end_ || output < begin_) Read(output);
    return output + n <= end_;
  }
  // Outputs in their order.
  Row At(int64_t output) {
    Have(output, 1);
    const int64_t at = (output - begin_) * p_.row_groups;
    return {call_.in<uint8_t>(first_) + output * p_.bytes, scales_ + at,
            minima_ != nullptr ? minima_ + at : nullptr, p_.block, p_.middle};
  }

 private:
  void Read(int64_t output) {
    const int64_t some = std::max<int64_t>(1, kScales / std::max<int64_t>(1, p_.groups));
    const bool shared = p_.row_groups == 0;
    begin_ = shared ? 0 : output;
    end_ = shared ? p_.outputs : std::min(p_.outputs, output + some);
    const int64_t n = shared ? p_.groups : (end_ - begin_) * p_.groups, at = begin_ * p_.row_groups;
    for (std::vector<float>& room : rooms_) room.resize(n);
    scales_ = call_.Read(first_ + 1, at, n, rooms_[0].data());
    if (p_.use_minima != 0) minima_ = call_.Read(first_ + 2, at, n, rooms_[1].data());
    // Those of the next rows, so that no loop waits for them then.
    if (!shared && p_.groups > 1) {
      for (int input = 1; input <= (p_.use_minima != 0 ? 2 : 1); ++input) {
        const FloatArray next = call_.floats(first_ + input);
        const auto *from = static_cast<const char*>(next.At(at + n)),
                   *end = static_cast<const char*>(
                       next.At(std::min(at + 2 * n, p_.outputs * p_.groups)));
        for (; from < end; from += 64) hwy::Prefetch(from);
      }
    }
  }

  static constexpr int64_t kScales = 512;
  const CpuCall& call_;
  const QuantizedParams& p_;
  const int first_;
  int64_t begin_ = 0, end_ = 0;
  const float *scales_ = nullptr, *minima_ = nullptr;
  std::vector<float> rooms_[2];
};

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROWS_INL_H_
