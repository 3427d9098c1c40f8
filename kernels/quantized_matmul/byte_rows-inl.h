// A few rows of x as integers of three bytes, for products of bytes: a block's numbers as multiples of a
// step of which the greatest has some 2^22, as a sum of floats would round them beside it. Compiled once
// per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_ROWS_INL_H_
#undef METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_ROWS_INL_H_
#else
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_ROWS_INL_H_
#endif

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/quantized_matmul/byte_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

// The greatest integer of codes of 4 bits is 127 of the highest byte, 127 of the next and 127. A sum
// of four terms of 8 bits around the middle fits with one bit less.
template <int kBits>
constexpr int32_t kGreatest = kBits == 4 ? 0x7F7F7F : 0x3FFFFF;

template <int kBits>
class ByteRows {
 public:
  static constexpr int kBytes = 3;

  explicit ByteRows(const QuantizedParams& p)
      : p_(p),
        vectors_((p.inputs + kTerms - 1) / kTerms),
        blocks_(BlocksOfVector<kBits>(p)),
        steps_row_(std::max(vectors_ * blocks_, PaddedGroups(p))),
        q_(hwy::AllocateAligned<int8_t>(p.rows * vectors_ * kTerms * kBytes)),
        begin_(hwy::AllocateAligned<int32_t>(p.rows * vectors_ * kSumLanes)),
        steps_(p.rows * steps_row_, 0.0f),
        sums_(p.rows * PaddedGroups(p), 0.0f) {}

  // False where an element is no number or too great for steps times scales, or all of a row are too
  // small for them.
  bool Read(const CpuCall& call) {
    for (int64_t r = 0; r < p_.rows; ++r) {
      int32_t greatest = 0;
      for (int64_t v = 0; v < vectors_; ++v) {
        HWY_ALIGN float x[kTerms];
        const int64_t n = std::min(kTerms, p_.inputs - v * kTerms);
        const float* const from = call.Read(0, r * p_.inputs + v * kTerms, n, x);
        if (from != x) std::copy_n(from, n, x);
        std::fill(x + n, x + kTerms, 0.0f);
        greatest = std::max(greatest, ReadVector(r, v, x));
        if (greatest >= BitsOf(kMost)) return false;
      }
      if (greatest != 0 && greatest < BitsOf(kLeast)) return false;
    }
    return true;
  }
  BytesOfX of_all() const {
    return {q_.get(),      vectors_ * kTerms * kBytes,
            begin_.get(),  vectors_ * kSumLanes,
            steps_.data(), steps_row_,
            sums_.data(),  PaddedGroups(p_)};
  }

 private:
  static constexpr int64_t kTerms = kTermsOfVector<kBits>;
  static constexpr float kMost = 0x1p22f, kLeast = 0x1p-60f;
  using DF = hn::ScalableTag<float>;

  static int32_t BitsOf(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
  }
  static float FloatOf(int32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }

  // The bits of the greatest |x|, in whose order Inf and NaN come last.
  int32_t ReadVector(int64_t r, int64_t v, const float* x) {
    const hn::ScalableTag<float> df;
    const DSums di;
    HWY_ALIGN int32_t integers[kTerms];
    const int64_t width = kTerms / blocks_;
    float steps[4];
    int32_t greatest = 0;
    for (int64_t b = 0; b < blocks_; ++b) {
      const float* const from = x + b * width;
      auto bits = hn::Zero(di);
      for (int64_t i = 0; i < width; i += kSumLanes) {
        bits = hn::Max(bits, hn::BitCast(di, hn::Abs(hn::Load(df, from + i))));
      }
      const int32_t most = hn::GetLane(hn::MaxOfLanes(di, bits));
      greatest = std::max(greatest, most);
      // Powers of two, so that numbers that fit stay as they are. Blocks of nothing but tiny numbers
      // count them by steps of their row's least.
      const int32_t exponent = std::max(most >> 23, kLeastExponent);
      int32_t by = 127 + (kBits == 4 ? 22 : 21) + 127 - exponent;
      if (FloatOf(most) * FloatOf(by << 23) > static_cast<float>(kGreatest<kBits>)) --by;
      steps[b] = FloatOf((254 - by) << 23);
      steps_[r * steps_row_ + v * blocks_ + b] = steps[b];
      const VF times = hn::Set(df, FloatOf(by << 23));
      for (int64_t i = 0; i < width; i += kSumLanes) {
        const auto rounded = hn::NearestInt(hn::Mul(hn::Load(df, from + i), times));
        hn::Store(rounded, di, integers + b * width + i);
      }
    }
    int8_t* const to = q_.get() + (r * vectors_ + v) * kTerms * kBytes;
    for (int64_t i = 0; i < kByteLanes; i += kSumLanes) {
      if (kBits == 8) {
        StoreBytes(hn::Load(di, integers + i), to + i);
      } else {
        const auto first = hn::Load(di, integers + 2 * i),
                   second = hn::Load(di, integers + 2 * i + kSumLanes);
        StoreBytes(hn::ConcatEven(di, second, first), to + i);
        StoreBytes(hn::ConcatOdd(di, second, first), to + kByteLanes + i);
      }
    }
    auto sum = SumsOfX<kBits>(to);
    for (int byte = 1; byte < kBytes; ++byte) {
      sum = hn::Add(hn::ShiftLeft<8>(sum), SumsOfX<kBits>(to + byte * kTerms));
    }
    const auto minus_middle = hn::Set(di, -static_cast<int32_t>(p_.middle));
    hn::Store(hn::Mul(sum, minus_middle), di, begin_.get() + (r * vectors_ + v) * kSumLanes);
    HWY_ALIGN int32_t sums[kSumLanes];
    hn::Store(sum, di, sums);
    for (int64_t b = 0; b < blocks_; ++b) {
      const int64_t lanes = kSumLanes / blocks_;
      int64_t of_block = 0;
      for (int64_t i = 0; i < lanes; ++i) of_block += sums[b * lanes + i];
      // Vectors reach beyond the last block.
      const int64_t group = std::min((v * kTerms + b * width) / p_.block, PaddedGroups(p_) - 1);
      sums_[r * PaddedGroups(p_) + group] += static_cast<float>(of_block) * steps[b];
    }
    return greatest;
  }

  static HWY_INLINE void StoreBytes(hn::Vec<DSums> x, int8_t* to) {
    const hn::Rebind<int8_t, DSums> bytes;
    for (int64_t byte = kBytes - 1; byte > 0; --byte) {
      const auto lowest = hn::ShiftRight<24>(hn::ShiftLeft<24>(x));
      hn::StoreU(hn::DemoteTo(bytes, lowest), bytes, to + byte * kTerms);
      x = hn::ShiftRight<8>(hn::Sub(x, lowest));
    }
    hn::StoreU(hn::DemoteTo(bytes, x), bytes, to);
  }

  static constexpr int32_t kLeastExponent = 127 - 80;
  const QuantizedParams& p_;
  const int64_t vectors_, blocks_, steps_row_;
  hwy::AlignedFreeUniquePtr<int8_t[]> q_;
  hwy::AlignedFreeUniquePtr<int32_t[]> begin_;
  std::vector<float> steps_, sums_;
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_ROWS_INL_H_
