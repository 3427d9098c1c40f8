// MetalQuantizedMatMul and MetalDequantize on the CPU. A byte's codes are neighbours in memory and
// vectors apart in a register: x is put into that order once, and codes are never moved.

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/quantized_matmul/quantized_matmul_call.h"

// Beside the instruction sets of all kernels AVX-512 with products of bytes.
#define HWY_WANT_AVX3_DL
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (0x2FFFD078 | METAL_OPS_TARGETS_LEFT_OUT)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized_matmul/quantized_matmul_simd.cc"
#include "kernels/simd/all_targets-inl.h"
// After the vectors it uses.
#include "kernels/quantized_matmul/byte_products-inl.h"
#include "kernels/quantized_matmul/byte_rows-inl.h"
#include "kernels/quantized_matmul/quantized_rows-inl.h"
#include "kernels/quantized_matmul/weight_tiles-inl.h"
#include "kernels/quantized_matmul/word_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// From a row of x in that order to the next one.
constexpr int64_t OrderedRow(int64_t inputs) { return (inputs / 16 | 1) * 16 + 32; }

// A vector of bytes as integers.
HWY_INLINE hn::Vec<hn::ScalableTag<int32_t>> Bytes(const uint8_t* from) {
  const hn::ScalableTag<int32_t> integers;
  const hn::Rebind<uint8_t, hn::ScalableTag<int32_t>> bytes;
  return hn::PromoteTo(integers, hn::LoadU(bytes, from));
}
HWY_INLINE Floats ToFloats(hn::Vec<hn::ScalableTag<int32_t>> x) {
  return Floats(hn::ConvertTo(hn::ScalableTag<float>(), x));
}

// Calls run(first, n, scale, minimum) for the part of [begin, begin + n) in each block.
template <typename Run>
HWY_INLINE void ForBlocks(const Row& row, int64_t begin, int64_t n, const Run& run) {
  int64_t group = begin / row.block, end = (group + 1) * row.block;
  for (int64_t i = begin; i < begin + n; ++group, end += row.block) {
    const int64_t count = std::min(begin + n, end) - i;
    run(i, count, row.scales[group], row.Minimum(group));
    i += count;
  }
}

// Where a chunk of n elements has those of high bits.
template <int kBits>
HWY_INLINE int64_t HighOf(int64_t n) {
  return kBits == 4 ? (n + 1) / 2 : 0;
}

// from[0:n], a chunk, in its order.
template <int kBits>
void PutInOrder(const float* from, int64_t n, float* to) {
  if (kBits == 8) {
    std::copy_n(from, n, to);
    return;
  }
  const int64_t high = HighOf<kBits>(n);
  for (int64_t i = 0; i < n / 2; ++i) {
    to[i] = from[2 * i];
    to[high + i] = from[2 * i + 1];
  }
  if (n % 2 != 0) to[n / 2] = from[n - 1];
}

template <int kBits>
HWY_INLINE int CodeOf(const uint8_t* codes, int64_t i) {
  return kBits == 8 ? codes[i] : codes[i / 2] >> (i % 2 * 4) & 15;
}

// The weights of a chunk, in its order.
template <int kBits>
HWY_INLINE void Unpack(const Row& row, int64_t begin, int64_t n, float* to) {
  const int64_t lanes = Floats::Lanes(), high = HighOf<kBits>(n);
  const auto low_bits = hn::Set(hn::ScalableTag<int32_t>(), 15);
  ForBlocks(row, begin, n, [&](int64_t i, int64_t count, float scale, float minimum) HWY_ATTR {
    const uint8_t* const codes = row.codes + i * kBits / 8;
    const int64_t at = (i - begin) * kBits / 8, bytes = count * kBits / 8;
    const Floats by(scale), plus(minimum);
    int64_t j = 0;
    for (; j + lanes <= bytes; j += lanes) {
      const auto pair = Bytes(codes + j);
      if (kBits == 4) {
        fma(ToFloats(hn::And(pair, low_bits)), by, plus).Store(to + at + j);
        fma(ToFloats(hn::ShiftRight<4>(pair)), by, plus).Store(to + high + at + j);
      } else {
        fma(ToFloats(pair), by, plus).Store(to + at + j);
      }
    }
    for (; j < bytes; ++j) {
      const int low = kBits == 4 ? codes[j] & 15 : codes[j];
      to[at + j] = std::fma(static_cast<float>(low), scale, minimum);
      if (kBits == 4)
        to[high + at + j] = std::fma(static_cast<float>(codes[j] >> 4), scale, minimum);
    }
    if (kBits == 4 && count % 2 != 0) {
      to[at + bytes] = std::fma(static_cast<float>(codes[bytes] & 15), scale, minimum);
    }
  });
}

// The dot products of a few rows of x with one of weights. Plain vectors, which the compiler keeps in
// registers: no function but this one sees them, and all loops over them have constant bounds.
template <int kBits, int kRows>
HWY_INLINE void Dot(const Row& row, int64_t inputs, const float* x, int64_t x_row,
                    float* products) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<int32_t> integers;
  const int64_t lanes = Floats::Lanes();
  const auto low_bits = hn::Set(integers, 15);
  // Low and high bits, or every other vector.
  VF sums[kRows][2];
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = hn::Zero(df);
  int64_t group = 0, end = 0, high = 0;
  VF scale = hn::Zero(df), minimum = scale;
  const int64_t whole = inputs / QUANTIZED_UNIT * QUANTIZED_UNIT;
  for (int64_t i = 0; i < whole; i += QUANTIZED_UNIT) {
    if (i == end) {
      scale = hn::Set(df, row.scales[group]);
      minimum = hn::Set(df, row.Minimum(group));
      ++group, end += row.block;
    }
    // Where the chunk has those of high bits, from those of low bits on.
    const int64_t chunk = i / kChunk * kChunk;
    if (kBits == 4 && i == chunk) high = HighOf<4>(HWY_MIN(kChunk, inputs - chunk));
    const uint8_t* const codes = row.codes + i * kBits / 8;
    const float* const from = x + (kBits == 4 ? chunk + (i - chunk) / 2 : i);
    const int64_t step = kBits == 4 ? lanes : 2 * lanes;
    for (int64_t j = 0; j < QUANTIZED_UNIT * kBits / 8; j += step) {
      const auto bytes = Bytes(codes + j);
      const auto first = kBits == 4 ? hn::And(bytes, low_bits) : bytes;
      const auto second =
          kBits == 4 ? hn::ShiftRight<4>(bytes) : Bytes(codes + j + (kBits == 4 ? 0 : lanes));
      const VF one = hn::MulAdd(hn::ConvertTo(df, first), scale, minimum);
      const VF two = hn::MulAdd(hn::ConvertTo(df, second), scale, minimum);
      const float* const other = from + (kBits == 4 ? high : lanes);
      for (int r = 0; r < kRows; ++r) {
        sums[r][0] = hn::MulAdd(one, hn::LoadU(df, from + r * x_row + j), sums[r][0]);
        sums[r][1] = hn::MulAdd(two, hn::LoadU(df, other + r * x_row + j), sums[r][1]);
      }
    }
  }
  HWY_ALIGN float lanes_of[kRows][HWY_MAX_BYTES / 4];
  for (int r = 0; r < kRows; ++r) hn::Store(hn::Add(sums[r][0], sums[r][1]), df, lanes_of[r]);
  for (int r = 0; r < kRows; ++r) products[r] = SumOf(Floats::Load(lanes_of[r]));
  if (whole == inputs) return;
  float rest[QUANTIZED_UNIT];
  const int64_t chunk = whole / kChunk * kChunk, n = inputs - chunk;
  high = HighOf<kBits>(n);
  for (int64_t i = whole; i < inputs; ++i) {
    rest[i - whole] = std::fma(static_cast<float>(CodeOf<kBits>(row.codes, i)),
                               row.scales[i / row.block], row.Minimum(i / row.block));
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t i = whole; i < inputs; ++i) {
      const int64_t at = kBits == 8 ? i : chunk + (i - chunk) / 2 + (i % 2 != 0 ? high : 0);
      products[r] += rest[i - whole] * x[r * x_row + at];
    }
  }
}

// y of a few rows of x, where dot(row, products) are an output's dot products with each: codes are
// read once and unpacked in registers.
template <int kRows, typename Dot>
void FewRows(CpuCall& call, const QuantizedParams& p, const Dot& dot) {
  call.ParallelFor(p.outputs, p.inputs * (1 + kRows) / 4 + 16, [&](int64_t begin, int64_t end) {
    Rows rows(call, p, 1);
    std::vector<float> sums(kRows * (end - begin));
    for (int64_t output = begin; output < end; ++output) {
      float products[kRows];
      dot(rows.At(output), products);
      for (int r = 0; r < kRows; ++r) sums[r * (end - begin) + output - begin] = products[r];
    }
    for (int r = 0; r < kRows; ++r) {
      call.Store(0, r * p.outputs + begin, end - begin, sums.data() + r * (end - begin));
    }
  });
}

template <int kBits, int kRows>
void FewRowsInOrder(CpuCall& call, const QuantizedParams& p, const float* x) {
  FewRows<kRows>(call, p, [&](const Row& row, float* products) {
    Dot<kBits, kRows>(row, p.inputs, x, OrderedRow(p.inputs), products);
  });
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
template <int kRows>
void FewRowsByWords(CpuCall& call, const QuantizedParams& p, const WordRows& x) {
  if (p.block < p.inputs && p.block < kWordTerms) {
    FewRows<kRows>(call, p, [&](const Row& row, float* products) {
      WordDot<true, kRows>(row, p, x, products);
    });
  } else {
    FewRows<kRows>(call, p, [&](const Row& row, float* products) {
      WordDot<false, kRows>(row, p, x, products);
    });
  }
}

// Whether that has computed the product.
bool ProductByWords(CpuCall& call, const QuantizedParams& p) {
  if (p.rows > QUANTIZED_FEW_ROWS || !FitWords(p)) return false;
  WordRows x(p);
  if (!x.Read(call)) return false;
  const auto run = p.rows == 1   ? FewRowsByWords<1>
                   : p.rows == 2 ? FewRowsByWords<2>
                   : p.rows == 3 ? FewRowsByWords<3>
                                 : FewRowsByWords<4>;
  run(call, p, x);
  return true;
}
#endif

#if HWY_TARGET == HWY_AVX3_DL
// Two rows of x at a time, and as many outputs before the next two as bring these into the first cache
// but now and then: of more rows, compilers would have sums wait in memory.
template <int kBits, bool kCentred>
void FewRowsByBytes(CpuCall& call, const QuantizedParams& p, const BytesOfX& x) {
  constexpr int64_t kTogether = 8;
  constexpr int kBytes = ByteRows<kBits>::kBytes;
  const int64_t cycles = p.inputs * (1 + p.rows) / 4 + 16;
  call.ParallelFor(p.outputs, cycles, [&](int64_t begin, int64_t end) {
    Rows rows(call, p, 1);
    const int64_t n = end - begin;
    std::vector<float> sums(p.rows * n);
    if (p.rows == 1) {
      ByteDots<kBits, kBytes, kCentred>(call, p, rows, begin, end, x, 0, sums.data());
      call.Store(0, begin, n, sums.data());
      return;
    }
    for (int64_t first = begin; first < end; first += kTogether) {
      const int64_t last = std::min(end, first + kTogether);
      for (int64_t r = 0; r < p.rows; r += 2) {
        const BytesOfX from = x.From(r);
        float* const to = sums.data() + r * n;
        for (int64_t output = first; output < last; ++output) {
          float products[2];
          if (r + 1 < p.rows) {
            ByteDot<kBits, kBytes, 2, kCentred>(call, p, rows, output, from, 0, products);
            to[n + output - begin] = products[1];
          } else {
            ByteDot<kBits, kBytes, 1, kCentred>(call, p, rows, output, from, 0, products);
          }
          to[output - begin] = products[0];
        }
      }
    }
    for (int64_t r = 0; r < p.rows; ++r) {
      call.Store(0, r * p.outputs + begin, n, sums.data() + r * n);
    }
  });
}

// Whether that has computed the product.
template <int kBits>
bool ProductByBytes(CpuCall& call, const QuantizedParams& p) {
  if (p.rows > QUANTIZED_FEW_ROWS || p.inputs == 0 || !HasByteProducts<kBits>(p)) return false;
  ByteRows<kBits> x(p);
  if (!x.Read(call)) return false;
  // Sums of codes of 8 bits have no room to count from 0, and weights that may be 0 are to add nothing.
  if (kBits == 8 || p.use_minima == 0) {
    FewRowsByBytes<kBits, true>(call, p, x.of_all());
  } else {
    FewRowsByBytes<kBits, kBits == 8>(call, p, x.of_all());
  }
  return true;
}
#endif

template <int kBits>
void Product(CpuCall& call, const QuantizedParams& p) {
#if HWY_TARGET == HWY_AVX3_DL
  if (ProductByBytes<kBits>(call, p)) return;
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if (kBits == 4 && ProductByWords(call, p)) return;
#endif
  const int64_t most = std::min(p.rows, kPanel);
  const hwy::AlignedFreeUniquePtr<float[]> ordered =
      hwy::AllocateAligned<float>(most * OrderedRow(p.inputs));
  for (int64_t first = 0; first < p.rows; first += most) {
    const int64_t n = std::min(most, p.rows - first);
    call.ParallelFor(n, 2 * p.inputs, [&](int64_t begin, int64_t end) {
      std::vector<float> room(kChunk);
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t at = 0; at < p.inputs; at += kChunk) {
          const int64_t terms = std::min(kChunk, p.inputs - at);
          PutInOrder<kBits>(call.Read(0, (first + row) * p.inputs + at, terms, room.data()), terms,
                            ordered.get() + row * OrderedRow(p.inputs) + at);
        }
      }
    });
    if (p.rows > QUANTIZED_FEW_ROWS) {
      const auto unpacker = [&] {
        return [rows = Rows(call, p, 1)](int64_t output, int64_t at, int64_t count,
                                         float* to) mutable {
          Unpack<kBits>(rows.At(output), at, count, to);
        };
      };
      ManyRows(call, p.outputs, p.inputs, first, n, ordered.get(), OrderedRow(p.inputs), unpacker);
      continue;
    }
    switch (n) {
      case 1:
        FewRowsInOrder<kBits, 1>(call, p, ordered.get());
        break;
      case 2:
        FewRowsInOrder<kBits, 2>(call, p, ordered.get());
        break;
      case 3:
        FewRowsInOrder<kBits, 3>(call, p, ordered.get());
        break;
      default:
        FewRowsInOrder<kBits, 4>(call, p, ordered.get());
    }
  }
}

void QuantizedMatMul(CpuCall& call) {
  const QuantizedParams p = ToQuantizedParams(call, call.Size("rows"), call.Size("inputs"), 1);
  if (p.rows == 0 || p.outputs == 0) return;
  if (call.Int("bits") == 4) {
    Product<4>(call, p);
  } else {
    Product<8>(call, p);
  }
}

template <int kBits>
void Weights(CpuCall& call, const QuantizedParams& p) {
  const MutableFloatArray weights = call.float_out(0);
  call.ParallelFor(p.outputs, 2 * p.inputs, [&](int64_t begin, int64_t end) {
    Rows rows(call, p, 0);
    std::vector<float> chunk(kChunk), room(kChunk);
    for (int64_t output = begin; output < end; ++output) {
      const Row row = rows.At(output);
      for (int64_t at = 0; at < p.inputs; at += kChunk) {
        const int64_t n = std::min(kChunk, p.inputs - at), high = HighOf<kBits>(n);
        Unpack<kBits>(row, at, n, chunk.data());
        float* const to = weights.Piece(output * p.inputs + at, room.data());
        for (int64_t i = 0; i < n; ++i) {
          to[i] = kBits == 8 ? chunk[i] : chunk[i % 2 == 0 ? i / 2 : high + i / 2];
        }
        weights.Store(output * p.inputs + at, n, to);
      }
    }
  });
}

void Dequantize(CpuCall& call) {
  const QuantizedParams p = ToQuantizedParams(call, 0, call.Int("inputs"), 0);
  if (call.Int("bits") == 4) {
    Weights<4>(call, p);
  } else {
    Weights<8>(call, p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("MetalQuantizedMatMul", QuantizedMatMul);
SIMD_KERNEL("MetalDequantize", Dequantize);
}  // namespace metal_ops
#endif  // HWY_ONCE
