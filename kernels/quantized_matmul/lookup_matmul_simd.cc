// MetalLookupMatMul and MetalLookupWeights on the CPU: sixteen codes at a time become floats by tables
// that lie in registers, those of 2^6 and 2^8 values on narrow vectors by loads.

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/quantized_matmul/lookup_matmul_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized_matmul/lookup_matmul_simd.cc"
#include "kernels/simd/all_targets-inl.h"
// After the vectors it uses.
#include "kernels/quantized_matmul/weight_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

constexpr int kSixteen = 16, kLanes = HWY_MAX_BYTES / 4, kParts = kSixteen / kLanes;

// The bytes of sixteen codes that hold the first bits of lane i's code, and their shifts.
template <int kBits>
struct Places {
  alignas(64) uint8_t bytes[4 * kSixteen];
  alignas(64) uint32_t shifts[kSixteen];

  Places() {
    for (int i = 0; i < kSixteen; ++i) {
      const int byte = i * kBits / 8;
      shifts[i] = i * kBits % 8;
      // 128: no byte.
      for (int j = 0; j < 4; ++j) bytes[4 * i + j] = 128;
      bytes[4 * i] = static_cast<uint8_t>(byte);
      if (shifts[i] + kBits > 8) bytes[4 * i + 1] = static_cast<uint8_t>(byte + 1);
    }
  }
};

// Sixteen codes of a table's row to floats. Its vectors are the caller's registers.
template <int kBits>
struct Lookup {
  using DU = hn::ScalableTag<uint32_t>;
  using DB = hn::Repartition<uint8_t, DU>;
  static constexpr int kValues = 1 << kBits;
  // Tables of so many vectors: more take as long as loads.
  static constexpr bool kInRegisters = kValues <= 4 * kLanes;
  static constexpr int kTables = kInRegisters ? (kValues + kLanes - 1) / kLanes : 1;

  hn::Vec<DB> bytes[kParts];
  hn::Vec<DU> shifts[kParts];
  VF tables[kTables];
  const float* table;

  // `values` are at least 16.
  HWY_INLINE Lookup(const Places<kBits>& places, const float* values) : table(values) {
    for (int part = 0; part < kParts; ++part) {
      bytes[part] = hn::Load(DB(), places.bytes + part * 4 * kLanes);
      shifts[part] = hn::Load(DU(), places.shifts + part * kLanes);
    }
    for (int i = 0; i < kTables; ++i) {
      tables[i] = hn::LoadU(hn::ScalableTag<float>(), values + i * kLanes);
    }
  }

  HWY_INLINE void Sixteen(const uint8_t* from, VF (&to)[kParts]) const {
    const auto codes = hn::LoadDup128(DB(), from);
    for (int part = 0; part < kParts; ++part) {
      const auto lanes = hn::BitCast(DU(), hn::TableLookupBytesOr0(codes, bytes[part]));
      to[part] = Find(hn::And(hn::Shr(lanes, shifts[part]), hn::Set(DU(), kValues - 1)));
    }
  }

 private:
  HWY_INLINE VF Find(hn::Vec<DU> codes) const {
    const hn::ScalableTag<float> df;
    const hn::ScalableTag<int32_t> integers;
    if constexpr (!kInRegisters) {
      return hn::GatherIndex(df, table, hn::BitCast(integers, codes));
    } else {
      const auto lanes = hn::IndicesFromVec(df, hn::And(codes, hn::Set(DU(), kLanes - 1)));
      const auto has = [&](uint32_t bit) HWY_ATTR {
        return hn::RebindMask(df, hn::TestBit(codes, hn::Set(DU(), bit)));
      };
      VF found = hn::TableLookupLanes(tables[0], lanes);
      if constexpr (kTables > 1) {
        const auto odd = has(kLanes);
        found = hn::IfThenElse(odd, hn::TableLookupLanes(tables[1], lanes), found);
        if constexpr (kTables > 2) {
          const VF upper = hn::IfThenElse(odd, hn::TableLookupLanes(tables[3], lanes),
                                          hn::TableLookupLanes(tables[2], lanes));
          found = hn::IfThenElse(has(2 * kLanes), upper, found);
        }
      }
      return found;
    }
  }
};

// The weights of outputs by tables, one output at a time.
template <int kBits>
class Outputs {
 public:
  Outputs(const CpuCall& call, const LookupParams& p, int first)
      : call_(call), p_(p), first_(first), values_(std::max(kSixteen, 1 << kBits)) {}

  const uint8_t* Codes(int64_t output) const {
    return call_.in<uint8_t>(first_) + output * p_.bytes;
  }
  // How many of n weights from `codes` on come in sixteens of which 16 bytes can be read.
  int64_t Whole(const uint8_t* codes, int64_t n) const {
    const uint8_t* const end = call_.in<uint8_t>(first_) + p_.outputs * p_.bytes;
    const int64_t n_readable = end - codes < 16 ? 0 : (end - codes - 16) / (2 * kBits) + 1;
    return std::min(n / kSixteen, n_readable) * kSixteen;
  }
  Lookup<kBits> Of(int64_t output) {
    if (output / p_.group != group_) {
      group_ = output / p_.group;
      constexpr int64_t kValues = 1 << kBits;
      const float* const from = call_.Read(first_ + 1, group_ * kValues, kValues, values_.data());
      if (from != values_.data()) std::copy_n(from, kValues, values_.data());
    }
    return Lookup<kBits>(places_, values_.data());
  }
  float One(const uint8_t* codes, int64_t i) const {
    const int64_t bit = i * kBits, byte = bit / 8;
    const int shift = static_cast<int>(bit % 8);
    unsigned code = codes[byte] >> shift;
    if (shift + kBits > 8) code |= unsigned{codes[byte + 1]} << (8 - shift);
    return values_[code & ((1u << kBits) - 1)];
  }
  // n weights from number `at` on, a multiple of 16.
  void Unpack(int64_t output, int64_t at, int64_t n, float* to) {
    const hn::ScalableTag<float> df;
    const Lookup<kBits> lookup = Of(output);
    const uint8_t* const codes = Codes(output) + at * kBits / 8;
    const int64_t whole = Whole(codes, n);
    for (int64_t i = 0; i < whole; i += kSixteen) {
      VF weights[kParts];
      lookup.Sixteen(codes + i * kBits / 8, weights);
      for (int part = 0; part < kParts; ++part) {
        hn::StoreU(weights[part], df, to + i + part * kLanes);
      }
    }
    for (int64_t i = whole; i < n; ++i) to[i] = One(codes, i);
  }

 private:
  const CpuCall& call_;
  const LookupParams& p_;
  const int first_;
  const Places<kBits> places_;
  std::vector<float> values_;
  int64_t group_ = -1;
};

// The dot products of a few rows of x with an output's weights.
template <int kBits, int kRows>
HWY_INLINE void Dot(Outputs<kBits>& outputs, int64_t output, int64_t inputs, const float* x,
                    int64_t x_row, float* products) {
  const hn::ScalableTag<float> df;
  const Lookup<kBits> lookup = outputs.Of(output);
  const uint8_t* const codes = outputs.Codes(output);
  const int64_t whole = outputs.Whole(codes, inputs);
  // Two sums a row, or one's next term would wait for the last.
  VF sums[kRows][2];
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = hn::Zero(df);
  const auto add = [&](int64_t i, int sum) HWY_ATTR {
    VF weights[kParts];
    lookup.Sixteen(codes + i * kBits / 8, weights);
    for (int part = 0; part < kParts; ++part) {
      const int to = kParts == 1 ? sum : part % 2;
      for (int r = 0; r < kRows; ++r) {
        const auto of_x = hn::LoadU(df, x + r * x_row + i + part * kLanes);
        sums[r][to] = hn::MulAdd(weights[part], of_x, sums[r][to]);
      }
    }
  };
  int64_t i = 0;
  for (; i + 2 * kSixteen <= whole; i += 2 * kSixteen) {
    add(i, 0);
    add(i + kSixteen, 1);
  }
  if (i < whole) add(i, 0);
  for (int r = 0; r < kRows; ++r) {
    products[r] = SumOf(Floats(hn::Add(sums[r][0], sums[r][1])));
  }
  for (i = whole; i < inputs; ++i) {
    const float weight = outputs.One(codes, i);
    for (int r = 0; r < kRows; ++r) products[r] += weight * x[r * x_row + i];
  }
}

template <int kBits, int kRows>
void FewRows(CpuCall& call, const LookupParams& p, const float* x) {
  call.ParallelFor(p.outputs, p.inputs * (1 + kRows) / 4 + 64, [&](int64_t begin, int64_t end) {
    Outputs<kBits> outputs(call, p, 1);
    std::vector<float> sums(kRows * (end - begin));
    for (int64_t output = begin; output < end; ++output) {
      float products[kRows];
      Dot<kBits, kRows>(outputs, output, p.inputs, x, p.inputs, products);
      for (int r = 0; r < kRows; ++r) sums[r * (end - begin) + output - begin] = products[r];
    }
    for (int r = 0; r < kRows; ++r) {
      call.Store(0, r * p.outputs + begin, end - begin, sums.data() + r * (end - begin));
    }
  });
}

template <int kBits>
void Product(CpuCall& call, const LookupParams& p) {
  const int64_t most = std::min(p.rows, kPanel);
  std::vector<float> room(most * p.inputs);
  for (int64_t first = 0; first < p.rows; first += most) {
    const int64_t n = std::min(most, p.rows - first);
    const float* const x = call.Read(0, first * p.inputs, n * p.inputs, room.data());
    if (p.rows > LOOKUP_ROWS) {
      const auto unpacker = [&] {
        return [outputs = Outputs<kBits>(call, p, 1)](int64_t output, int64_t at, int64_t count,
                                                      float* to) mutable {
          outputs.Unpack(output, at, count, to);
        };
      };
      ManyRows(call, p.outputs, p.inputs, first, n, x, p.inputs, unpacker);
      continue;
    }
    switch (n) {
      case 1:
        FewRows<kBits, 1>(call, p, x);
        break;
      case 2:
        FewRows<kBits, 2>(call, p, x);
        break;
      case 3:
        FewRows<kBits, 3>(call, p, x);
        break;
      default:
        FewRows<kBits, 4>(call, p, x);
    }
  }
}

template <int kBits>
void Weights(CpuCall& call, const LookupParams& p) {
  const MutableFloatArray weights = call.float_out(0);
  call.ParallelFor(p.outputs, 2 * p.inputs, [&](int64_t begin, int64_t end) {
    Outputs<kBits> outputs(call, p, 0);
    std::vector<float> room(kChunk);
    for (int64_t output = begin; output < end; ++output) {
      for (int64_t at = 0; at < p.inputs; at += kChunk) {
        const int64_t n = std::min(kChunk, p.inputs - at), place = output * p.inputs + at;
        float* const to = weights.Piece(place, room.data());
        outputs.Unpack(output, at, n, to);
        weights.Store(place, n, to);
      }
    }
  });
}

// Calls run with the call's bits as a constant.
template <typename Run>
void WithBits(const CpuCall& call, const Run& run) {
  switch (call.Int("bits")) {
    case 2:
      return run(std::integral_constant<int, 2>());
    case 3:
      return run(std::integral_constant<int, 3>());
    case 4:
      return run(std::integral_constant<int, 4>());
    case 6:
      return run(std::integral_constant<int, 6>());
    default:
      return run(std::integral_constant<int, 8>());
  }
}

void LookupMatMul(CpuCall& call) {
  const LookupParams p = ToLookupParams(call, call.Size("rows"), call.Size("inputs"), 1);
  if (p.rows == 0 || p.outputs == 0) return;
  WithBits(call, [&](auto bits) { Product<decltype(bits)::value>(call, p); });
}

void LookupWeights(CpuCall& call) {
  const LookupParams p = ToLookupParams(call, 0, call.Int("inputs"), 0);
  WithBits(call, [&](auto bits) { Weights<decltype(bits)::value>(call, p); });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("MetalLookupMatMul", LookupMatMul);
SIMD_KERNEL("MetalLookupWeights", LookupWeights);
}  // namespace metal_ops
#endif  // HWY_ONCE
