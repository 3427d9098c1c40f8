// Products of a few rows of x with codes of 4 bits, eight to a lane of AVX-512: the inner loop of
// MetalQuantizedMatMul where blocks allow it. A lane's lowest four bits look its code up, and one shift
// brings the next: no code is widened by itself, and scales are multiplied with once per vector, not once
// per weight. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_QUANTIZED_MATMUL_WORD_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_QUANTIZED_MATMUL_WORD_PRODUCTS_INL_H_
#undef METAL_OPS_KERNELS_QUANTIZED_MATMUL_WORD_PRODUCTS_INL_H_
#else
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_WORD_PRODUCTS_INL_H_
#endif

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/quantized_matmul/quantized_rows-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

constexpr int64_t kWordLanes = 16, kWordCodes = 8, kWordTerms = kWordLanes * kWordCodes;
constexpr int64_t kWordBytes = kWordTerms / 2;
// Beyond this, sums of x may overflow where sums of x by weights do not.
constexpr float kMostOfWords = 1e30f;

// Whether a vector's codes are whole blocks, or blocks whole vectors.
inline bool FitWords(const QuantizedParams& p) {
  return p.block >= p.inputs || p.block % kWordTerms == 0 || kWordTerms % p.block == 0;
}

// A few rows of x in the order of the codes, and sums of each block's.
class WordRows {
 public:
  explicit WordRows(const QuantizedParams& p)
      : p_(p),
        row_((p.inputs + kWordTerms - 1) / kWordTerms * kWordTerms + kWordLanes),
        ordered_(hwy::AllocateAligned<float>(p.rows * row_)),
        sums_(p.rows * p.groups, 0.0f) {}

  // False where an element is too great, or no number.
  bool Read(const CpuCall& call) {
    std::fill_n(ordered_.get(), p_.rows * row_, 0.0f);
    std::vector<float> room(kWordTerms);
    for (int64_t r = 0; r < p_.rows; ++r) {
      for (int64_t at = 0; at < p_.inputs; at += kWordTerms) {
        const int64_t n = std::min(kWordTerms, p_.inputs - at);
        const float* const from = call.Read(0, r * p_.inputs + at, n, room.data());
        float* const to = ordered_.get() + r * row_ + at;
        for (int64_t i = 0; i < n; i += QUANTIZED_UNIT) {
          float sum = 0;
          for (int64_t j = i; j < std::min<int64_t>(n, i + QUANTIZED_UNIT); ++j) {
            if (!(std::abs(from[j]) < kMostOfWords)) return false;
            to[j % kWordCodes * kWordLanes + j / kWordCodes] = from[j];
            sum += from[j];
          }
          sums_[r * p_.groups + (at + i) / p_.block] += sum;
        }
      }
    }
    return true;
  }
  const float* x(int64_t row) const { return ordered_.get() + row * row_; }
  const float* sums(int64_t row) const { return sums_.data() + row * p_.groups; }

 private:
  const QuantizedParams& p_;
  int64_t row_;
  hwy::AlignedFreeUniquePtr<float[]> ordered_;
  std::vector<float> sums_;
};

// The dot products of rows of x with one of weights. `kNarrow`: blocks are smaller than a vector's codes.
// A row at a time: memory that is read in more than one place at once comes at half the rate.
template <bool kNarrow, int kRows>
HWY_INLINE void WordDot(const Row& row, const QuantizedParams& p, const WordRows& x,
                        float* products) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<int32_t> di;
  const hn::ScalableTag<uint8_t> du;
  // Around the middle, so that the minima's part is no larger than the weights.
  const VF meant = hn::Sub(hn::ConvertTo(df, hn::Iota(di, 0)), hn::Set(df, p.middle));
  const int64_t steps = (p.inputs + kWordTerms - 1) / kWordTerms;
  const int64_t blocks = kNarrow ? kWordTerms / p.block : 1;
  // A lane's block among the vector's two or four.
  const auto lanes = hn::Iota(di, 0);
  const auto block_of = blocks == 4 ? hn::ShiftRight<2>(lanes) : hn::ShiftRight<3>(lanes);
  // As many sums as a processor begins before the first is done; those of one vector alone overlap
  // with the next one's.
  constexpr int kSums = kNarrow ? 2 : 4;
  VF sums[kRows], terms[kRows][kSums];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(df);
  for (int64_t step = 0, group = 0; step < steps; group += blocks) {
    const int64_t end = kNarrow                 ? step + 1
                        : group + 1 == p.groups ? steps
                                                : (group + 1) * p.block / kWordTerms;
    for (int r = 0; r < kRows; ++r) {
      for (int s = 0; s < kSums; ++s) terms[r][s] = hn::Zero(df);
    }
    for (; step < end; ++step) {
      const uint8_t* const from = row.codes + step * kWordBytes;
      FetchCodes(from);
      const int64_t left = p.bytes - step * kWordBytes;
      auto codes =
          hn::BitCast(di, left >= kWordBytes ? hn::LoadU(du, from)
                                             : hn::MaskedLoad(hn::FirstN(du, left), du, from));
      for (int i = 0; i < kWordCodes; i += kSums) {
        for (int s = 0; s < kSums; ++s) {
          // Four bits say which lane is meant; IndicesFromVec wants the others to be zero.
          const VF w = hn::TableLookupLanes(meant, hn::Indices512<float>{codes.raw});
          codes = hn::ShiftRight<4>(codes);
          for (int r = 0; r < kRows; ++r) {
            const VF of_x = hn::LoadU(df, x.x(r) + step * kWordTerms + (i + s) * kWordLanes);
            terms[r][s] = hn::MulAdd(w, of_x, terms[r][s]);
          }
        }
      }
    }
    VF scale;
    if (kNarrow) {
      const auto there = hn::FirstN(df, std::min(blocks, p.groups - group));
      scale = hn::TableLookupLanes(hn::MaskedLoad(there, df, row.scales + group),
                                   hn::Indices512<float>{block_of.raw});
    } else {
      scale = hn::Set(df, row.scales[group]);
    }
    for (int r = 0; r < kRows; ++r) {
      VF all = hn::Add(terms[r][0], terms[r][1]);
      if (!kNarrow) all = hn::Add(all, hn::Add(terms[r][kSums - 2], terms[r][kSums - 1]));
      sums[r] = hn::MulAdd(all, scale, sums[r]);
    }
  }
  for (int64_t group = 0; row.minima != nullptr && group < p.groups; group += kWordLanes) {
    const auto there = hn::FirstN(df, std::min(kWordLanes, p.groups - group));
    const VF middle =
        hn::MulAdd(hn::MaskedLoad(there, df, row.scales + group), hn::Set(df, p.middle),
                   hn::MaskedLoad(there, df, row.minima + group));
    for (int r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(middle, hn::MaskedLoad(there, df, x.sums(r) + group), sums[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) products[r] = SumOf(Floats(sums[r]));
}

#endif  // HWY_AVX3, HWY_AVX3_DL

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_WORD_PRODUCTS_INL_H_
