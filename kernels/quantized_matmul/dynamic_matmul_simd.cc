// MetalDynamicMatMul on the CPU: rows of x are rounded to 8 bits, and products of integers are summed
// in 32 bits up to a block's end. Codes that lie two to a byte need x in their order, first the even
// ones of a unit, then the odd ones.

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/quantized_matmul/quantized_matmul_call.h"

// Beside the instruction sets of all kernels AVX-512 with products of bytes, which are twice as fast.
#define HWY_WANT_AVX3_DL
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (0x2FFFD078 | METAL_OPS_TARGETS_LEFT_OUT)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized_matmul/dynamic_matmul_simd.cc"
#include "kernels/simd/all_targets-inl.h"
// After the vectors it uses.
#include "kernels/quantized_matmul/byte_products-inl.h"
#include "kernels/quantized_matmul/quantized_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// A unit's codes fill whole vectors.
using D16 = hn::CappedTag<int16_t, QUANTIZED_UNIT / 2>;
using D32 = hn::RepartitionToWide<D16>;
constexpr int kCodes =
    HWY_MAX_BYTES / 2 < QUANTIZED_UNIT / 2 ? HWY_MAX_BYTES / 2 : QUANTIZED_UNIT / 2;
constexpr int kVectors = QUANTIZED_UNIT / kCodes;
// A lane's sum of so many products of 255 and 127 fits, whatever the width.
constexpr int64_t kMostTerms = 65536;
constexpr int64_t kRowsAtOnce = 4, kOutputsAtOnce = 16, kPanelOfRows = 256;

int64_t Units(int64_t inputs, int64_t unit = QUANTIZED_UNIT) { return (inputs + unit - 1) / unit; }

// x[0:n] rounded to integers from -127 to 127, zeros up to a unit's end, and the sum of each block's
// where `sums` is not null. Returns the value of one unit: NaN where not all of x is finite.
template <int kBits, typename T>
float ToInt8(const float* x, int64_t n, int64_t unit, int64_t block, T* to, float* sums) {
  uint32_t greatest = 0;  // the bits of |x|, in whose order NaN comes last
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    greatest = std::max(greatest, bits & 0x7fffffffu);
  }
  float most;
  std::memcpy(&most, &greatest, sizeof most);
  std::fill_n(to, Units(n, unit) * unit, T{0});
  if (sums != nullptr) std::fill_n(sums, Units(n, block), 0.0f);
  if (!std::isfinite(most)) return std::numeric_limits<float>::quiet_NaN();
  if (most < QUANTIZED_LEAST) return 0.0f;
  const Floats by(127.0f / most);
  alignas(64) int32_t rounded[QUANTIZED_UNIT];
  float last[QUANTIZED_UNIT] = {};
  int64_t sum = 0;
  for (int64_t at = 0, group = 0; at < n; at += QUANTIZED_UNIT) {
    const float* from = x + at;
    if (n - at < QUANTIZED_UNIT) {
      std::copy_n(from, n - at, last);
      from = last;
    }
    for (int64_t i = 0; i < QUANTIZED_UNIT; i += Floats::Lanes()) {
      hn::Store(hn::NearestInt((Floats::Load(from + i) * by).v), hn::ScalableTag<int32_t>(),
                rounded + i);
    }
    if (sums != nullptr) {
      // Blocks consist of such pieces, except the only one of a row.
      if (at == (group + 1) * block) ++group, sum = 0;
      int32_t some = 0;
      for (int i = 0; i < QUANTIZED_UNIT; ++i) some += rounded[i];
      sums[group] = static_cast<float>(sum += some);
    }
    if (kBits == 8) {
      for (int i = 0; i < QUANTIZED_UNIT; ++i) to[at + i] = static_cast<T>(rounded[i]);
    } else {
      T* const even = to + at / unit * unit + at % unit / 2;
      for (int i = 0; i < QUANTIZED_UNIT / 2; ++i) {
        even[i] = static_cast<T>(rounded[2 * i]);
        even[unit / 2 + i] = static_cast<T>(rounded[2 * i + 1]);
      }
    }
  }
  return most / 127.0f;
}

template <int kBits>
HWY_INLINE void UnitCodes(const uint8_t* from, hn::Vec<D16> middle, hn::Vec<D16> (&to)[kVectors]) {
  const hn::Rebind<uint8_t, D16> bytes;
  for (int i = 0; i < kVectors; ++i) {
    if (kBits == 8) {
      to[i] = hn::PromoteTo(D16(), hn::LoadU(bytes, from + i * kCodes));
    } else {
      const int at = i % (kVectors / 2) * kCodes;
      const auto two = hn::PromoteTo(D16(), hn::LoadU(bytes, from + at));
      to[i] = i < kVectors / 2 ? hn::And(two, hn::Set(D16(), 15)) : hn::ShiftRight<4>(two);
    }
    to[i] = hn::Sub(to[i], middle);
  }
}

// Adds products, each the sum of two neighbours', to the sums of both terms.
HWY_INLINE void AddPairs(hn::Vec<D16> a, hn::Vec<D16> b, hn::Vec<D32>* terms) {
#if HWY_TARGET == HWY_AVX3_DL
  const auto products = hn::ReorderWidenMulAccumulate(D32(), a, b, hn::Zero(D32()), terms[1]);
  terms[0] = hn::Add(terms[0], Unseen(products));
#else
  terms[0] = hn::ReorderWidenMulAccumulate(D32(), a, b, terms[0], terms[1]);
#endif
}

// The dot products of a few rows of rounded x, q_row apart, with one of weights, without its minima.
template <int kBits, int kRows>
HWY_INLINE void IntegerDot(const Row& row, const QuantizedParams& p, const int16_t* q,
                           int64_t q_row, float* products) {
  using DF = hn::Rebind<float, D32>;
  constexpr int64_t kBytes = QUANTIZED_UNIT * kBits / 8;
  const auto middle =
      hn::Set(D16(), row.minima != nullptr ? int16_t{0} : static_cast<int16_t>(row.middle));
  const int64_t units = Units(p.inputs);
  uint8_t last[kBytes] = {};
  const bool part = units * kBytes > p.bytes;
  if (part) {
    std::copy_n(row.codes + (units - 1) * kBytes, p.bytes - (units - 1) * kBytes, last);
  }
  hn::Vec<DF> sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(DF());
  int64_t group = 0, block_end = row.block;
  for (int64_t begin = 0; begin < p.inputs;) {
    const int64_t end = std::min({block_end, p.inputs, begin + kMostTerms});
    hn::Vec<D32> terms[kRows][2];
    for (int r = 0; r < kRows; ++r) terms[r][0] = terms[r][1] = hn::Zero(D32());
    for (int64_t i = begin; i < end; i += QUANTIZED_UNIT) {
      const bool at_end = part && i + QUANTIZED_UNIT > p.inputs;
      hn::Vec<D16> codes[kVectors];
      UnitCodes<kBits>(at_end ? last : row.codes + i * kBits / 8, middle, codes);
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          const auto x = hn::LoadU(D16(), q + r * q_row + i + v * kCodes);
          AddPairs(codes[v], x, terms[r]);
        }
      }
    }
    const auto scale = hn::Set(DF(), row.scales[group]);
    for (int r = 0; r < kRows; ++r) {
      const auto exact = hn::Add(terms[r][0], terms[r][1]);
      sums[r] = hn::MulAdd(hn::ConvertTo(DF(), exact), scale, sums[r]);
    }
    begin = end;
    if (end == block_end) ++group, block_end += row.block;
  }
  for (int r = 0; r < kRows; ++r) products[r] = hn::GetLane(hn::SumOfLanes(DF(), sums[r]));
}

// The minima's part of that: each times the sum of its block's x.
float OfMinima(const Row& row, const QuantizedParams& p, const float* sums) {
  Floats of_lanes(0.0f);
  const int64_t lanes = Floats::Lanes();
  int64_t group = 0;
  for (; group + lanes <= p.groups; group += lanes) {
    of_lanes = fma(Floats::Load(row.minima + group), Floats::Load(sums + group), of_lanes);
  }
  float sum = hn::GetLane(hn::SumOfLanes(hn::ScalableTag<float>(), of_lanes.v));
  for (; group < p.groups; ++group) sum += row.minima[group] * sums[group];
  return sum;
}

// x for IntegerDot.
template <int kBits>
class Words {
 public:
  using X = int16_t;
  static constexpr int64_t kUnit = QUANTIZED_UNIT;
  static constexpr int kTermsOfStep = 16;

  Words(const QuantizedParams& p, int64_t) : p_(p) {}
  void Rounded(const X*, int64_t) {}
  // For one row: whether all outputs from `begin` to `end` have been computed.
  bool Dots(const CpuCall&, Rows&, int64_t, int64_t, const X*, const float*, float*) const {
    return false;
  }
  template <int kRows>
  void Dot(const CpuCall&, Rows& rows, int64_t output, const X* q, int64_t q_row, int64_t,
           const float* sums_of_x, int64_t sums_row, float* products) const {
    const Row row = rows.At(output);
    IntegerDot<kBits, kRows>(row, p_, q, q_row, products);
    for (int r = 0; row.minima != nullptr && r < kRows; ++r) {
      products[r] += OfMinima(row, p_, sums_of_x + r * sums_row);
    }
  }

 private:
  const QuantizedParams& p_;
};

#if HWY_TARGET == HWY_AVX3_DL
// x for ByteDot, of one byte.
template <int kBits>
class Bytes {
 public:
  using X = int8_t;
  static constexpr int64_t kUnit = kTermsOfVector<kBits>;
  static constexpr int kTermsOfStep = 64;

  Bytes(const QuantizedParams& p, int64_t rows)
      : p_(p),
        begin_row_(p.use_minima != 0 ? 0 : Units(p.inputs, kUnit) * kSumLanes),
        begin_(rows * begin_row_) {}
  void Rounded(const X* q, int64_t row) {
    if (p_.use_minima == 0) BeginnersOfSums<kBits>(q, p_, begin_.data() + row * begin_row_);
  }
  template <int kRows>
  void Dot(const CpuCall& call, Rows& rows, int64_t output, const X* q, int64_t q_row,
           int64_t first, const float* sums_of_x, int64_t sums_row, float* products) const {
    const BytesOfX x = Of(q, q_row, first, sums_of_x, sums_row);
    if (p_.use_minima != 0) {
      ByteDot<kBits, 1, kRows, false>(call, p_, rows, output, x, kMostTerms, products);
    } else {
      ByteDot<kBits, 1, kRows, true>(call, p_, rows, output, x, kMostTerms, products);
    }
  }

  bool Dots(const CpuCall& call, Rows& rows, int64_t begin, int64_t end, const X* q,
            const float* sums_of_x, float* products) const {
    const BytesOfX x = Of(q, 0, 0, sums_of_x, 0);
    if (p_.use_minima != 0) {
      ByteDots<kBits, 1, false>(call, p_, rows, begin, end, x, kMostTerms, products);
    } else {
      ByteDots<kBits, 1, true>(call, p_, rows, begin, end, x, kMostTerms, products);
    }
    return true;
  }

 private:
  BytesOfX Of(const X* q, int64_t q_row, int64_t first, const float* sums_of_x,
              int64_t sums_row) const {
    return {
        q,         q_row,   begin_.data() + first * begin_row_, begin_row_, /*steps=*/nullptr, 0,
        sums_of_x, sums_row};
  }

  const QuantizedParams& p_;
  int64_t begin_row_;
  std::vector<int32_t> begin_;
};
#endif

template <int kBits, template <int> class Kind>
void DynamicProduct(CpuCall& call, const QuantizedParams& p) {
  using X = typename Kind<kBits>::X;
  constexpr int64_t kUnit = Kind<kBits>::kUnit;
  const int64_t most = std::min(p.rows, kPanelOfRows), q_row = Units(p.inputs, kUnit) * kUnit + 16;
  const hwy::AlignedFreeUniquePtr<X[]> q = hwy::AllocateAligned<X>(most * q_row);
  const int64_t sums_row = p.use_minima != 0 ? Units(p.groups, 16) * 16 : 0;
  std::vector<float> steps(most), sums_of_x(most * sums_row);
  Kind<kBits> kind(p, most);
  for (int64_t first = 0; first < p.rows; first += most) {
    const int64_t n = std::min(most, p.rows - first);
    call.ParallelFor(n, 4 * p.inputs, [&](int64_t begin, int64_t end) {
      std::vector<float> room(p.inputs);
      for (int64_t row = begin; row < end; ++row) {
        const float* const x = call.Read(0, (first + row) * p.inputs, p.inputs, room.data());
        float* const sums = sums_row > 0 ? sums_of_x.data() + row * sums_row : nullptr;
        steps[row] = ToInt8<kBits>(x, p.inputs, kUnit, p.block, q.get() + row * q_row, sums);
        kind.Rounded(q.get() + row * q_row, row);
      }
    });
    const int64_t pieces = (p.outputs + kOutputsAtOnce - 1) / kOutputsAtOnce;
    // With few rows most of the time is spent waiting for the codes.
    const int64_t cycles =
        kOutputsAtOnce * (p.inputs * (1 + n) / Kind<kBits>::kTermsOfStep + p.bytes / 4 + 16);
    call.ParallelFor(pieces, cycles, [&](int64_t begin, int64_t end) {
      Rows rows(call, p, 1);
      if (n == 1) {
        const int64_t from = begin * kOutputsAtOnce, to = std::min(p.outputs, end * kOutputsAtOnce);
        std::vector<float> of_all(to - from);
        if (kind.Dots(call, rows, from, to, q.get(), sums_of_x.data(), of_all.data())) {
          for (float& y : of_all) y *= steps[0];
          call.Store(0, first * p.outputs + from, to - from, of_all.data());
          return;
        }
      }
      std::vector<float> sums(n * kOutputsAtOnce);
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t output = piece * kOutputsAtOnce;
        const int64_t n_outputs = std::min(kOutputsAtOnce, p.outputs - output);
        for (int64_t at = 0; at < n; at += kRowsAtOnce) {
          const int64_t some = std::min(kRowsAtOnce, n - at);
          for (int64_t o = 0; o < n_outputs; ++o) {
            const X* const x = q.get() + at * q_row;
            const float* const of_x = sums_of_x.data() + at * sums_row;
            float products[kRowsAtOnce];
            if (some == kRowsAtOnce) {
              kind.template Dot<kRowsAtOnce>(call, rows, output + o, x, q_row, at, of_x, sums_row,
                                             products);
            } else {
              for (int64_t r = 0; r < some; ++r) {
                kind.template Dot<1>(call, rows, output + o, x + r * q_row, q_row, at + r,
                                     of_x + r * sums_row, sums_row, products + r);
              }
            }
            for (int64_t r = 0; r < some; ++r) {
              sums[(at + r) * kOutputsAtOnce + o] = steps[at + r] * products[r];
            }
          }
        }
        for (int64_t row = 0; row < n; ++row) {
          call.Store(0, (first + row) * p.outputs + output, n_outputs,
                     sums.data() + row * kOutputsAtOnce);
        }
      }
    });
  }
}

template <int kBits>
void DynamicProduct(CpuCall& call, const QuantizedParams& p) {
#if HWY_TARGET == HWY_AVX3_DL
  if (HasByteProducts<kBits>(p)) return DynamicProduct<kBits, Bytes>(call, p);
#endif
  DynamicProduct<kBits, Words>(call, p);
}

void DynamicMatMul(CpuCall& call) {
  const QuantizedParams p = ToQuantizedParams(call, call.Size("rows"), call.Size("inputs"), 1);
  if (p.rows == 0 || p.outputs == 0) return;
  if (call.Int("bits") == 4) {
    DynamicProduct<4>(call, p);
  } else {
    DynamicProduct<8>(call, p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("MetalDynamicMatMul", DynamicMatMul);
}  // namespace metal_ops
#endif  // HWY_ONCE
