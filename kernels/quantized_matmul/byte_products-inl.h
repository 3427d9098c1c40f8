// Products of unsigned and signed bytes, four to a lane (AVX-512's VNNI): what MetalDynamicMatMul is
// made of where a processor has them. Compiled once an instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
#undef METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
#else
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
#endif

#include <algorithm>

#include "kernels/quantized_matmul/quantized_rows-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

using DBytes = hn::ScalableTag<int8_t>;
using DSums = hn::ScalableTag<int32_t>;
constexpr int64_t kByteLanes = 64, kSumLanes = 16;

HWY_INLINE hn::Vec<DSums> AddProducts(hn::Vec<DSums> sum, hn::Vec<hn::ScalableTag<uint8_t>> codes,
                                      hn::Vec<DBytes> x) {
  // Not the intrinsic: Highway 1.0 asks processors for VNNI, and does not tell the compiler.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(codes.raw), "vm"(x.raw));
  return sum;
}

// Products that compilers do not see together with their sum. Highway 1.0 promises them AVX-VNNI, which
// processors with AVX-512's VNNI need not have (Ice Lake, Zen 4): clang made an instruction of it.
template <class V>
HWY_INLINE V Unseen(V products) {
  asm("" : "+v"(products.raw));
  return products;
}

// A vector's codes, and whether blocks are made of whole vectors or vectors of whole blocks.
template <int kBits>
constexpr int64_t kTermsOfVector = kByteLanes * 8 / kBits;
template <int kBits>
bool HasByteProducts(const QuantizedParams& p) {
  constexpr int64_t kTerms = kTermsOfVector<kBits>;
  return p.block >= p.inputs || p.block % kTerms == 0 || kTerms % p.block == 0;
}

// Which of a vector's blocks a lane belongs to.
inline void BlocksOfLanes(int64_t blocks, int32_t* to) {
  for (int64_t lane = 0; lane < kSumLanes; ++lane) {
    to[lane] = static_cast<int32_t>(lane * blocks / kSumLanes);
  }
}

// For symmetric weights: what each lane's sum begins with, minus the middle times its x.
template <int kBits>
void BeginnersOfSums(const int8_t* q, const QuantizedParams& p, int32_t* to) {
  const hn::ScalableTag<uint8_t> codes;
  const auto ones = hn::Set(codes, uint8_t{1});
  const auto by = hn::Set(DSums(), -static_cast<int32_t>(p.middle));
  for (int64_t i = 0; i < p.inputs; i += kTermsOfVector<kBits>, to += kSumLanes) {
    auto sum = AddProducts(hn::Zero(DSums()), ones, hn::LoadU(DBytes(), q + i));
    if (kBits == 4) sum = AddProducts(sum, ones, hn::LoadU(DBytes(), q + i + kByteLanes));
    hn::StoreU(hn::Mul(sum, by), DSums(), to);
  }
}

// What a few rows of rounded x have in common with one of weights; rows of x are q_row apart, and those
// of what sums begin with, which are zeros where there are minima, begin_row. `sums_of_x`: what minima
// are multiplied with, a row of blocks each.
template <int kBits, int kRows>
HWY_INLINE void ByteDot(const Row& row, const QuantizedParams& p, const int8_t* q, int64_t q_row,
                        const int32_t* begin, int64_t begin_row, const int32_t* block_of,
                        const float* sums_of_x, int64_t most, float* products) {
  const hn::ScalableTag<uint8_t> du;
  const hn::ScalableTag<float> df;
  constexpr int64_t kTerms = kTermsOfVector<kBits>;
  const int64_t vectors = (p.inputs + kTerms - 1) / kTerms;
  const int64_t step = row.minima != nullptr ? 0 : kSumLanes;
  const auto low_bits = hn::Set(du, uint8_t{15});
  hn::Vec<DSums> terms[kRows];
  hn::Vec<hn::ScalableTag<float>> sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(df);
  const auto add = [&](int64_t v) HWY_ATTR {
    const uint8_t* const from = row.codes + v * kByteLanes;
    const int64_t left = p.bytes - v * kByteLanes;
    const auto codes =
        left >= kByteLanes ? hn::LoadU(du, from) : hn::MaskedLoad(hn::FirstN(du, left), du, from);
    for (int r = 0; r < kRows; ++r) {
      const int8_t* const x = q + r * q_row + v * kTerms;
      if (kBits == 8) {
        terms[r] = AddProducts(terms[r], codes, hn::LoadU(DBytes(), x));
      } else {
        const auto high = hn::And(hn::ShiftRight<4>(hn::Vec<hn::ScalableTag<uint16_t>>{codes.raw}),
                                  hn::Vec<hn::ScalableTag<uint16_t>>{low_bits.raw});
        terms[r] = AddProducts(terms[r], hn::And(codes, low_bits), hn::LoadU(DBytes(), x));
        terms[r] = AddProducts(terms[r], hn::Vec<hn::ScalableTag<uint8_t>>{high.raw},
                               hn::LoadU(DBytes(), x + kByteLanes));
      }
      const auto first = hn::LoadU(DSums(), begin + r * begin_row + v * step);
      terms[r] = hn::Add(terms[r], first);
    }
  };
  if (p.block < p.inputs && p.block < kTerms) {
    const int64_t blocks = kTerms / p.block;
    const auto spread = hn::IndicesFromVec(df, hn::LoadU(DSums(), block_of));
    for (int64_t v = 0, group = 0; v < vectors; ++v, group += blocks) {
      for (int r = 0; r < kRows; ++r) terms[r] = hn::Zero(DSums());
      add(v);
      const auto there = hn::FirstN(df, std::min(blocks, p.groups - group));
      const auto scales = hn::MaskedLoad(there, df, row.scales + group);
      const auto scale = hn::TableLookupLanes(scales, spread);
      for (int r = 0; r < kRows; ++r) {
        sums[r] = hn::MulAdd(hn::ConvertTo(df, terms[r]), scale, sums[r]);
      }
    }
  } else {
    for (int64_t v = 0, group = 0, end_of_block; v < vectors; ++group) {
      end_of_block = std::min(vectors, ((group + 1) * row.block + kTerms - 1) / kTerms);
      const auto scale = hn::Set(df, row.scales[group]);
      while (v < end_of_block) {
        const int64_t end = std::min(end_of_block, v + most / kTerms);
        for (int r = 0; r < kRows; ++r) terms[r] = hn::Zero(DSums());
        for (; v < end; ++v) add(v);
        for (int r = 0; r < kRows; ++r) {
          sums[r] = hn::MulAdd(hn::ConvertTo(df, terms[r]), scale, sums[r]);
        }
      }
    }
  }
  // Into the same lanes, which are summed once.
  for (int64_t group = 0; row.minima != nullptr && group < p.groups; group += kSumLanes) {
    const auto there = hn::FirstN(df, std::min(kSumLanes, p.groups - group));
    const auto minima = hn::MaskedLoad(there, df, row.minima + group);
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::MaskedLoad(there, df, sums_of_x + r * p.groups + group);
      sums[r] = hn::MulAdd(minima, x, sums[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) products[r] = hn::GetLane(hn::SumOfLanes(df, sums[r]));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
