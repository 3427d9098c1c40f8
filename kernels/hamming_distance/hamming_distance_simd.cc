// HammingDistance on the CPU: tiles of rows against rows, each pair word by word.

#include <algorithm>
#include <cstring>

#include "kernels/hamming_distance/hamming_distance_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hamming_distance/hamming_distance_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// Rows of so many bytes and more are counted in vectors: their sums cost as much as some words.
constexpr int64_t kLong = 128;
// The part of the first cache for a tile of b while rows of a go over it, and the number of rows.
constexpr int64_t kTileBytes = 16 << 10, kTileRows = 16;

constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f, kHigh = 0x8080808080808080;

// For each byte of a word that is not 0 its highest bit, or the word itself.
template <bool kElements>
HWY_INLINE uint64_t Differing(uint64_t word) {
  return kElements ? (((word & kLow) + kLow) | word) & kHigh : word;
}

template <bool kElements>
HWY_INLINE int64_t Word(const uint8_t* a, const uint8_t* b, size_t n = 8) {
  uint64_t x = 0, y = 0;
  std::memcpy(&x, a, n);
  std::memcpy(&y, b, n);
  return static_cast<int64_t>(hwy::PopCount(Differing<kElements>(x ^ y)));
}

// kWords: of 8 bytes, so many and no more; 0: any number of bytes.
template <bool kElements, int kWords>
HWY_INLINE int32_t Distance(const uint8_t* a, const uint8_t* b, int64_t bytes) {
  int64_t i = 0, n = 0;
  if constexpr (kWords > 0) {
    for (int word = 0; word < kWords; ++word) n += Word<kElements>(a + 8 * word, b + 8 * word);
    return static_cast<int32_t>(n);
  }
  if (bytes >= kLong) {
    const hn::ScalableTag<uint64_t> d;
    const hn::Repartition<uint8_t, decltype(d)> d8;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d8));
    const auto low = hn::Set(d, kLow), high = hn::Set(d, kHigh);
    const auto counted = [&](int64_t at) HWY_ATTR {
      auto x = hn::BitCast(d, hn::Xor(hn::LoadU(d8, a + at), hn::LoadU(d8, b + at)));
      if constexpr (kElements) {
        x = hn::And(hn::Or(hn::Add(hn::And(x, low), low), x), high);
      }
      return hn::PopulationCount(x);
    };
    auto even = hn::Zero(d), odd = hn::Zero(d);
    for (; i + 2 * lanes <= bytes; i += 2 * lanes) {
      even = hn::Add(even, counted(i));
      odd = hn::Add(odd, counted(i + lanes));
    }
    n = static_cast<int64_t>(hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))));
  }
  for (; i + 8 <= bytes; i += 8) n += Word<kElements>(a + i, b + i);
  if (i < bytes) n += Word<kElements>(a + i, b + i, static_cast<size_t>(bytes - i));
  return static_cast<int32_t>(n);
}

struct Tile {
  const uint8_t *a, *b;
  int32_t* to;
  int64_t rows, columns;
};

template <bool kElements, int kWords>
void Compare(const HammingParams& p, const Tile& tile) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const uint8_t* const a = tile.a + row * p.a_strides[1] * p.bytes;
    const uint8_t* const b = tile.b + row * p.b_strides[1] * p.bytes;
    int32_t* const to = tile.to + row * p.sizes[0];
    const int64_t a_step = p.a_strides[0] * p.bytes, b_step = p.b_strides[0] * p.bytes;
    for (int64_t i = 0; i < tile.columns; ++i) {
      to[i] = Distance<kElements, kWords>(a + i * a_step, b + i * b_step, p.bytes);
    }
  }
}

template <bool kElements>
auto CompareOf(int64_t bytes) {
  switch (bytes) {
    case 8:
      return Compare<kElements, 1>;
    case 16:
      return Compare<kElements, 2>;
    case 32:
      return Compare<kElements, 4>;
    case 64:
      return Compare<kElements, 8>;
    default:
      return Compare<kElements, 0>;
  }
}

void HammingDistance(CpuCall& call) {
  if (call.outputs[0].n_elements == 0) return;
  const HammingParams p = ToHammingParams(call);
  const auto compare = p.elements != 0 ? CompareOf<true>(p.bytes) : CompareOf<false>(p.bytes);
  const int64_t columns = p.sizes[0], rows = p.sizes[1];
  const int64_t width =
      std::min(columns, std::max<int64_t>(64, kTileBytes / std::max<int64_t>(1, p.bytes)));
  const int64_t height = std::min(rows, kTileRows);
  const int64_t across = (columns + width - 1) / width, down = (rows + height - 1) / height;
  const int64_t others = call.outputs[0].n_elements / (columns * rows);
  call.ParallelFor(
      others * down * across, width * height * (p.bytes / 8 + 4), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t column = i % across * width, row = i / across % down * height;
          const int64_t outer = i / across / down;
          int64_t a = column * p.a_strides[0] + row * p.a_strides[1];
          int64_t b = column * p.b_strides[0] + row * p.b_strides[1];
          int64_t rest = outer;
          for (uint32_t dim = 2; dim < p.n_dims; ++dim) {
            a += rest % p.sizes[dim] * p.a_strides[dim];
            b += rest % p.sizes[dim] * p.b_strides[dim];
            rest /= p.sizes[dim];
          }
          compare(p, {call.in<uint8_t>(0) + a * p.bytes, call.in<uint8_t>(1) + b * p.bytes,
                      call.out<int32_t>(0) + (outer * rows + row) * columns + column,
                      std::min(height, rows - row), std::min(width, columns - column)});
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("HammingDistance", HammingDistance);
}  // namespace metal_ops
#endif  // HWY_ONCE
