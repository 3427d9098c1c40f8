// Products of unsigned and signed bytes, four to a lane (AVX-512's VNNI): for products with codes of 4
// and 8 bits where a processor has them and blocks allow it. Codes are bytes as they are; x is integers
// of one byte, or of three. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
#undef METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
#else
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/quantized_matmul/quantized_rows-inl.h"
#include "kernels/simd/half-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

using DBytes = hn::ScalableTag<int8_t>;
using DSums = hn::ScalableTag<int32_t>;
using VF = hn::Vec<hn::ScalableTag<float>>;
constexpr int64_t kByteLanes = 64, kSumLanes = 16;

HWY_INLINE hn::Vec<DSums> AddProducts(hn::Vec<DSums> sum, hn::Vec<hn::ScalableTag<uint8_t>> codes,
                                      hn::Vec<DBytes> x) {
  // Not the intrinsic: Highway 1.0 asks processors for VNNI, and does not tell the compiler. Volatile:
  // in the order of the source, where neighbours do not wait for each other.
  asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(codes.raw), "vm"(x.raw));
  return sum;
}

// Products that compilers do not see together with their sum. Highway 1.0 maps them to AVX-VNNI, which
// processors with AVX-512's VNNI may lack (Ice Lake, Zen 4): clang made an instruction of it.
template <class V>
HWY_INLINE V Unseen(V products) {
  asm("" : "+v"(products.raw));
  return products;
}

// Loads that happen once, and in the order of the source, which the hardware prefetcher follows.
template <class V>
HWY_INLINE V InOrder(V loaded) {
  asm volatile("" : "+v"(loaded.raw));
  return loaded;
}

// A vector's codes, and whether blocks are made of whole vectors or vectors of whole blocks.
template <int kBits>
constexpr int64_t kTermsOfVector = kByteLanes * 8 / kBits;
template <int kBits>
bool HasByteProducts(const QuantizedParams& p) {
  constexpr int64_t kTerms = kTermsOfVector<kBits>;
  return p.block >= p.inputs || p.block % kTerms == 0 || kTerms % p.block == 0;
}
// Whether vectors have several blocks, and how many.
template <int kBits>
bool HasNarrowBlocks(const QuantizedParams& p) {
  return p.block < p.inputs && p.block < kTermsOfVector<kBits>;
}
template <int kBits>
int64_t BlocksOfVector(const QuantizedParams& p) {
  return HasNarrowBlocks<kBits>(p) ? kTermsOfVector<kBits> / p.block : 1;
}
// Numbers a block of which there are p.groups, for vectors that reach beyond.
inline int64_t PaddedGroups(const QuantizedParams& p) {
  return (p.groups + kSumLanes - 1) / kSumLanes * kSumLanes;
}

// Rows of x as integers of one or more bytes, from each row to the next one so many.
struct BytesOfX {
  // Vector of codes after vector: of all its terms the highest byte, then the next one.
  const int8_t* q;
  int64_t q_row;
  // The addend of a vector's sums where codes count from their middle: minus that times their terms of
  // x.
  const int32_t* begin;
  int64_t begin_row;
  // The value of one unit, where it is not the same for a whole row: in each block of a vector, or in
  // each vector of a block.
  const float* steps;
  int64_t steps_row;
  // The sum of each block, for minima.
  const float* sums;
  int64_t sums_row;

  // Rows from `row` on.
  BytesOfX From(int64_t row) const {
    BytesOfX rows = *this;
    rows.q += row * q_row;
    rows.begin += row * begin_row;
    rows.steps += row * steps_row;
    rows.sums += row * sums_row;
    return rows;
  }
};

// The x of a vector for each of the sixteen sums.
template <int kBits>
HWY_INLINE hn::Vec<DSums> SumsOfX(const int8_t* q) {
  const auto ones = hn::Set(hn::ScalableTag<uint8_t>(), uint8_t{1});
  auto sum = AddProducts(hn::Zero(DSums()), ones, hn::LoadU(DBytes(), q));
  if (kBits == 4) sum = AddProducts(sum, ones, hn::LoadU(DBytes(), q + kByteLanes));
  return sum;
}

// For symmetric weights: the initial value of each lane's sum.
template <int kBits>
void BeginnersOfSums(const int8_t* q, const QuantizedParams& p, int32_t* to) {
  const auto by = hn::Set(DSums(), -static_cast<int32_t>(p.middle));
  for (int64_t i = 0; i < p.inputs; i += kTermsOfVector<kBits>, to += kSumLanes) {
    hn::StoreU(hn::Mul(SumsOfX<kBits>(q + i), by), DSums(), to);
  }
}

// Vectors at once, so that processors find sums to go on with that wait for no others.
template <int kRows>
constexpr int kAtOnce = kRows > 2 ? 1 : 4 / kRows;

// Outputs of one row of x that are gone through side by side, each at a place of its own: where hardware
// comes to the end of a page, it goes on reading the others ahead. Nearer ends need less fetched.
constexpr int kFarOutputs = 4;
constexpr int64_t kFarAhead = 2048, kFarScalesAhead = 256;

// terms[r] += the sixteen sums of each vector of codes by row r of x; of more than one byte they are to
// be zero before. `left`: bytes of codes from `from` on. kCentred: codes count from their middle.
// `far`: bytes from a vector to the next one, if that is the same place of another output.
template <int kBits, int kBytes, int kRows, bool kCentred, int kVectors>
HWY_INLINE void AddVectors(const uint8_t* from, int64_t left, const int8_t* q, int64_t q_row,
                           const int32_t* begin, int64_t begin_row,
                           hn::Vec<DSums> (&terms)[kRows][kVectors], int64_t far = 0) {
  const hn::ScalableTag<uint8_t> du;
  const hn::ScalableTag<uint16_t> d16;
  constexpr int64_t kTerms = kTermsOfVector<kBits>;
  const auto low_bits = hn::Set(du, uint8_t{15});
  hn::Vec<hn::ScalableTag<uint8_t>> low[kVectors], high[kVectors];
  const int64_t codes_step = far > 0 ? far : kByteLanes, x_step = far > 0 ? 0 : kTerms * kBytes,
                begin_step = far > 0 ? 0 : kSumLanes;
  for (int v = 0; v < kVectors; ++v, from += codes_step) {
    FetchCodes(from, far > 0 ? kFarAhead : kCodesAhead);
    const auto both = InOrder(kVectors > 1 || left >= kByteLanes
                                  ? hn::LoadU(du, from)
                                  : hn::MaskedLoad(hn::FirstN(du, left), du, from));
    low[v] = kBits == 8 ? both : hn::And(both, low_bits);
    high[v] = hn::BitCast(
        du, hn::And(hn::ShiftRight<4>(hn::BitCast(d16, both)), hn::BitCast(d16, low_bits)));
  }
  for (int r = 0; r < kRows; ++r) {
    for (int byte = 0; byte < kBytes; ++byte) {
      const int8_t* const x = q + r * q_row + byte * kTerms;
      for (int v = 0; v < kVectors; ++v) {
        if (byte > 0) terms[r][v] = hn::ShiftLeft<8>(terms[r][v]);
      }
      for (int v = 0; v < kVectors; ++v) {
        const auto of_x = hn::LoadU(DBytes(), x + v * x_step);
        terms[r][v] = AddProducts(terms[r][v], low[v], of_x);
      }
      for (int v = 0; v < kVectors && kBits == 4; ++v) {
        const auto of_x = hn::LoadU(DBytes(), x + v * x_step + kByteLanes);
        terms[r][v] = AddProducts(terms[r][v], high[v], of_x);
      }
    }
    for (int v = 0; v < kVectors && kCentred; ++v) {
      const auto of_x = hn::LoadU(DSums(), begin + r * begin_row + v * begin_step);
      terms[r][v] = hn::Add(terms[r][v], of_x);
    }
  }
}

// n of a row's scales or minima, up to sixteen, and zeros.
HWY_INLINE VF LoadSome(const float* from, int64_t n) {
  const hn::ScalableTag<float> df;
  return n >= kSumLanes ? hn::LoadU(df, from) : hn::MaskedLoad(hn::FirstN(df, n), df, from);
}
HWY_INLINE VF LoadSome(const uint16_t* from, int64_t n) {
  const hn::ScalableTag<float> df;
  if (n >= kSumLanes) return LoadHalves(df, from);
  uint16_t some[kSumLanes] = {};
  std::copy_n(from, n, some);
  return LoadHalves(df, some);
}

// The dot products of a few rows of x with one of weights whose blocks come kBlocks to a vector:
// the scales of sixteen blocks are read at a time, and lanes find theirs among them. S: float, or
// uint16_t for float16.
template <int kBits, int kBytes, int kRows, bool kCentred, int kBlocks, typename S>
HWY_INLINE void NarrowDot(const uint8_t* codes, const S* scales, const S* minima,
                          const QuantizedParams& p, const BytesOfX& x, float* products) {
  const hn::ScalableTag<float> df;
  constexpr int64_t kTerms = kTermsOfVector<kBits>, kVectors = kSumLanes / kBlocks;
  // Products of float16 scales and steps of x are all exact in float32.
  constexpr bool kHalves = std::is_same<S, uint16_t>::value;
  const int64_t groups = p.groups, q_row = x.q_row, begin_row = x.begin_row;
  const int8_t* q = x.q;
  const int32_t* begin = x.begin;
  const uint8_t* const end = codes + p.bytes;
  // Each lane's in a vector.
  const auto block_of = hn::ShiftRight < kBlocks == 4 ? 2 : 3 > (hn::Iota(DSums(), 0));
  // Two of each, as one would be waited for.
  VF sums[kRows][2];
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = hn::Zero(df);
  for (int64_t group = 0; group < groups; group += kSumLanes) {
    const VF scale = LoadSome(scales + group, groups - group);
    FetchScales(scales + group);
    if (minima != nullptr) {
      VF minimum = LoadSome(minima + group, groups - group);
      FetchScales(minima + group);
      if (kCentred) minimum = hn::MulAdd(scale, hn::Set(df, p.middle), minimum);
      for (int r = 0; r < kRows; ++r) {
        const VF of_x = hn::LoadU(df, x.sums + r * x.sums_row + group);
        sums[r][1] = hn::MulAdd(minimum, of_x, sums[r][1]);
      }
    }
    VF steps[kRows], by[kRows];
    for (int r = 0; r < kRows; ++r) {
      steps[r] = kBytes > 1 ? hn::LoadU(df, x.steps + r * x.steps_row + group) : scale;
      by[r] = kBytes > 1 && kHalves ? hn::Mul(scale, steps[r]) : scale;
    }
    const auto add = [&](auto some, int64_t i, int64_t left) HWY_ATTR {
      constexpr int kSome = decltype(some)::value;
      hn::Vec<DSums> terms[kRows][kSome];
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kSome; ++v) terms[r][v] = hn::Zero(DSums());
      }
      AddVectors<kBits, kBytes, kRows, kCentred>(
          codes + i * kByteLanes, left, q + i * kTerms * kBytes, q_row,
          kCentred ? begin + i * kSumLanes : begin, begin_row, terms);
      for (int v = 0; v < kSome; ++v) {
        const auto others = hn::Set(DSums(), static_cast<int32_t>((i + v) * kBlocks));
        const hn::Indices512<float> at{hn::Add(block_of, others).raw};
        for (int r = 0; r < kRows; ++r) {
          VF term = hn::ConvertTo(df, terms[r][v]);
          if (kBytes > 1 && !kHalves) term = hn::Mul(term, hn::TableLookupLanes(steps[r], at));
          sums[r][v % 2] = hn::MulAdd(term, hn::TableLookupLanes(by[r], at), sums[r][v % 2]);
        }
      }
    };
    constexpr int kSome = kAtOnce<kRows>;
    if (end - codes >= kVectors * kByteLanes) {
      for (int i = 0; i < kVectors; i += kSome) {
        add(std::integral_constant<int, kSome>(), i, kByteLanes);
      }
    } else {
      for (int i = 0; i < kVectors; ++i) {
        const int64_t left = end - codes - i * kByteLanes;
        if (left > 0) add(std::integral_constant<int, 1>(), i, left);
      }
    }
    codes += kVectors * kByteLanes;
    q += kVectors * kTerms * kBytes;
    if (kCentred) begin += kVectors * kSumLanes;  // else there are none
  }
  for (int r = 0; r < kRows; ++r) {
    products[r] = hn::GetLane(hn::SumOfLanes(df, hn::Add(sums[r][0], sums[r][1])));
  }
}

// Whether FarDots is for such weights: blocks of which vectors have several, sixteen of them at a time.
template <int kBits>
bool HasFarDots(const QuantizedParams& p) {
  return HasNarrowBlocks<kBits>(p) && p.groups % kSumLanes == 0 && p.groups * p.block == p.inputs;
}

// The dot products of a row of x with a few outputs, each `far` after the one before.
template <int kBits, int kBytes, bool kCentred, int kBlocks, typename S>
HWY_INLINE void FarDots(const uint8_t* codes, const S* scales, const S* minima, int64_t far,
                        const QuantizedParams& p, const BytesOfX& x, float* products) {
  const hn::ScalableTag<float> df;
  constexpr int64_t kTerms = kTermsOfVector<kBits>, kVectors = kSumLanes / kBlocks;
  constexpr bool kHalves = std::is_same<S, uint16_t>::value;
  const int64_t far_groups = far * p.row_groups, far_bytes = far * p.bytes;
  const int8_t* q = x.q;
  const int32_t* begin = x.begin;
  const auto block_of = hn::ShiftRight < kBlocks == 4 ? 2 : 3 > (hn::Iota(DSums(), 0));
  VF sums[kFarOutputs][2];
  for (int o = 0; o < kFarOutputs; ++o) sums[o][0] = sums[o][1] = hn::Zero(df);
  for (int64_t group = 0; group < p.groups; group += kSumLanes) {
    const VF steps = kBytes > 1 ? hn::LoadU(df, x.steps + group) : hn::Zero(df);
    VF by[kFarOutputs];
    for (int o = 0; o < kFarOutputs; ++o) {
      const int64_t at = o * far_groups + group;
      const VF scale = LoadSome(scales + at, kSumLanes);
      FetchScales(scales + at, kFarScalesAhead);
      if (minima != nullptr) {
        VF minimum = LoadSome(minima + at, kSumLanes);
        FetchScales(minima + at, kFarScalesAhead);
        if (kCentred) minimum = hn::MulAdd(scale, hn::Set(df, p.middle), minimum);
        sums[o][1] = hn::MulAdd(minimum, hn::LoadU(df, x.sums + group), sums[o][1]);
      }
      by[o] = kBytes > 1 && kHalves ? hn::Mul(scale, steps) : scale;
    }
    for (int i = 0; i < kVectors; ++i) {
      hn::Vec<DSums> terms[1][kFarOutputs];
      for (int o = 0; o < kFarOutputs; ++o) terms[0][o] = hn::Zero(DSums());
      AddVectors<kBits, kBytes, 1, kCentred>(
          codes + i * kByteLanes, kByteLanes, q + i * kTerms * kBytes, 0,
          kCentred ? begin + i * kSumLanes : begin, 0, terms, far_bytes);
      const auto others = hn::Set(DSums(), static_cast<int32_t>(i * kBlocks));
      const hn::Indices512<float> at{hn::Add(block_of, others).raw};
      for (int o = 0; o < kFarOutputs; ++o) {
        VF term = hn::ConvertTo(df, terms[0][o]);
        if (kBytes > 1 && !kHalves) term = hn::Mul(term, hn::TableLookupLanes(steps, at));
        VF& sum = sums[o][i % 2];
        sum = hn::MulAdd(term, hn::TableLookupLanes(by[o], at), sum);
      }
    }
    codes += kVectors * kByteLanes;
    q += kVectors * kTerms * kBytes;
    if (kCentred) begin += kVectors * kSumLanes;  // else there are none
  }
  for (int o = 0; o < kFarOutputs; ++o) {
    products[o] = hn::GetLane(hn::SumOfLanes(df, hn::Add(sums[o][0], sums[o][1])));
  }
}

// That of weights whose blocks are vectors. `most`: terms of a sum of integers.
template <int kBits, int kBytes, int kRows, bool kCentred>
HWY_INLINE void WideDot(const Row& row, const QuantizedParams& p, const BytesOfX& x, int64_t most,
                        float* products) {
  const hn::ScalableTag<float> df;
  constexpr int64_t kTerms = kTermsOfVector<kBits>;
  const int64_t vectors = (p.inputs + kTerms - 1) / kTerms;
  VF sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(df);
  for (int64_t v = 0, group = 0; v < vectors; ++group) {
    const int64_t end_of_block = std::min(vectors, ((group + 1) * row.block + kTerms - 1) / kTerms);
    const VF scale = hn::Set(df, row.scales[group]);
    VF of_block[kRows];
    for (int r = 0; r < kRows; ++r) of_block[r] = hn::Zero(df);
    while (v < end_of_block) {
      const int64_t end = kBytes > 1 ? v + 1 : std::min(end_of_block, v + most / kTerms);
      hn::Vec<DSums> terms[kRows][1];
      for (int r = 0; r < kRows; ++r) terms[r][0] = hn::Zero(DSums());
      const int64_t first = v;
      for (; v < end; ++v) {
        const int64_t at = v * kByteLanes;
        AddVectors<kBits, kBytes, kRows, kCentred>(
            row.codes + at, p.bytes - at, x.q + v * kTerms * kBytes, x.q_row,
            kCentred ? x.begin + v * kSumLanes : x.begin, x.begin_row, terms);
      }
      for (int r = 0; r < kRows; ++r) {
        const VF term = hn::ConvertTo(df, terms[r][0]);
        if (kBytes > 1) {
          const VF step = hn::Set(df, x.steps[r * x.steps_row + first]);
          of_block[r] = hn::MulAdd(term, step, of_block[r]);
        } else {
          of_block[r] = hn::Add(of_block[r], term);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) sums[r] = hn::MulAdd(of_block[r], scale, sums[r]);
  }
  // Into the same lanes, which are summed once.
  for (int64_t group = 0; row.minima != nullptr && group < p.groups; group += kSumLanes) {
    VF minimum = LoadSome(row.minima + group, p.groups - group);
    if (kCentred) {
      const VF scale = LoadSome(row.scales + group, p.groups - group);
      minimum = hn::MulAdd(scale, hn::Set(df, p.middle), minimum);
    }
    for (int r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(minimum, hn::LoadU(df, x.sums + r * x.sums_row + group), sums[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) products[r] = hn::GetLane(hn::SumOfLanes(df, sums[r]));
}

// Calls dot(codes, scales, minima, kBlocks) with an output's of narrow blocks.
template <int kBits, typename Dot>
HWY_INLINE void WithNarrow(const CpuCall& call, const QuantizedParams& p, int64_t output,
                           const Dot& dot) {
  const uint8_t* const codes = call.in<uint8_t>(1) + output * p.bytes;
  const int64_t at = output * p.row_groups;
  const auto with = [&](auto zero) HWY_ATTR {
    using S = decltype(zero);
    const S *const scales = call.in<S>(2) + at,
                   *minima = p.use_minima != 0 ? call.in<S>(3) + at : nullptr;
    if (kBits == 4 && 4 * p.block == kTermsOfVector<kBits>) {
      dot(codes, scales, minima, std::integral_constant<int, 4>());
    } else {
      dot(codes, scales, minima, std::integral_constant<int, 2>());
    }
  };
  if (call.floats(2).type == FloatType::kHalf) {
    with(uint16_t{0});
  } else {
    with(0.0f);
  }
}

// The dot products of kRows rows of x with an output's weights.
template <int kBits, int kBytes, int kRows, bool kCentred>
HWY_INLINE void ByteDot(const CpuCall& call, const QuantizedParams& p, Rows& rows, int64_t output,
                        const BytesOfX& x, int64_t most, float* products) {
  if (!HasNarrowBlocks<kBits>(p)) {
    WideDot<kBits, kBytes, kRows, kCentred>(rows.At(output), p, x, most, products);
    return;
  }
  WithNarrow<kBits>(call, p, output,
                    [&](auto* codes, auto* scales, auto* minima, auto blocks) HWY_ATTR {
                      NarrowDot<kBits, kBytes, kRows, kCentred, decltype(blocks)::value>(
                          codes, scales, minima, p, x, products);
                    });
}

// The dot products of one row of x with outputs from `begin` to `end`.
template <int kBits, int kBytes, bool kCentred>
HWY_INLINE void ByteDots(const CpuCall& call, const QuantizedParams& p, Rows& rows, int64_t begin,
                         int64_t end, const BytesOfX& x, int64_t most, float* products) {
  const int64_t far = HasFarDots<kBits>(p) ? (end - begin) / kFarOutputs : 0;
  for (int64_t i = 0; i < far; ++i) {
    float some[kFarOutputs];
    WithNarrow<kBits>(call, p, begin + i,
                      [&](auto* codes, auto* scales, auto* minima, auto blocks) HWY_ATTR {
                        FarDots<kBits, kBytes, kCentred, decltype(blocks)::value>(
                            codes, scales, minima, far, p, x, some);
                      });
    for (int o = 0; o < kFarOutputs; ++o) products[o * far + i] = some[o];
  }
  for (int64_t output = begin + kFarOutputs * far; output < end; ++output) {
    ByteDot<kBits, kBytes, 1, kCentred>(call, p, rows, output, x, most, products + output - begin);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_BYTE_PRODUCTS_INL_H_
