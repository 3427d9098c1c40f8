// Reading and adding to the table's rows, one point after the other. Compiled once an instruction
// set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_HASH_ENCODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_HASH_ENCODE_ROWS_INL_H_
#undef METAL_OPS_HASH_ENCODE_ROWS_INL_H_
#else
#define METAL_OPS_HASH_ENCODE_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/hash_encode/hash_encode_cells-inl.h"
#include "kernels/hash_encode/hash_encode_simd.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// How features are stored. `Raw` is what pointers point to.
struct Float {
  using Raw = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Raw* from) {
    return hn::LoadU(d, from);
  }
};

struct Half {
  using Raw = uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Raw* from) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  // Round to nearest even.
  static HWY_INLINE void Round(const float* from, size_t n, Raw* to);
};

struct Bfloat16 {
  using Raw = uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Raw* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<uint32_t, D> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
  }
  static HWY_INLINE void Round(const float* from, size_t n, Raw* to);
};

// One value at a time, in integers: needs no hardware support.
HWY_INLINE uint16_t RoundToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);  // NaN
  if (magnitude >= 0x477FF000u)
    return static_cast<uint16_t>(sign | 0x7C00u);                   // above 65504 + half a step
  if (magnitude < 0x33000001u) return static_cast<uint16_t>(sign);  // at most half of 2^-24
  const uint32_t exponent = magnitude >> 23;
  // Subnormal halves keep fewer bits of the significand; its leading bit is explicit there.
  const uint32_t dropped = exponent < 113 ? 126 - exponent : 13;
  const uint32_t significand =
      exponent < 113 ? (magnitude & 0x7FFFFFu) | 0x800000u : magnitude - (112u << 23);
  const uint32_t odd = (significand >> dropped) & 1u;
  return static_cast<uint16_t>(sign |
                               ((significand + ((1u << (dropped - 1)) - 1) + odd) >> dropped));
}

void Half::Round(const float* from, size_t n, Raw* to) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const DF df;
  const hn::Rebind<hwy::float16_t, DF> dh;
  for (; i + hn::Lanes(df) <= n; i += hn::Lanes(df)) {
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(df, from + i)), dh,
               reinterpret_cast<hwy::float16_t*>(to + i));
  }
#endif
  for (; i < n; ++i) to[i] = RoundToHalf(from[i]);
}

void Bfloat16::Round(const float* from, size_t n, Raw* to) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    to[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
  }
}

// Second half of a block's work. Pointers are at the level's first row and the block's first point;
// `stride` is the distance between points in elements.
struct RowsArgs {
  const void* table;
  float* sums;
  const void* incoming;
  void* outputs;
  int64_t stride;
  size_t n;
};

using RowsFn = void (*)(Block&, const RowsArgs&);

// The instance of a `Kernel<T, D, F>::Run` for a call.
template <template <class, size_t, size_t> class Kernel, class T, size_t D>
RowsFn ForFeatures(int64_t n_features) {
  switch (n_features) {
    case 1:
      return &Kernel<T, D, 1>::Run;
    case 2:
      return &Kernel<T, D, 2>::Run;
    case 4:
      return &Kernel<T, D, 4>::Run;
    default:
      return &Kernel<T, D, 8>::Run;
  }
}

template <template <class, size_t, size_t> class Kernel, class T>
RowsFn ForDims(const HashEncodeCall& call) {
  switch (call.n_dims) {
    case 2:
      return ForFeatures<Kernel, T, 2>(call.n_features);
    case 3:
      return ForFeatures<Kernel, T, 3>(call.n_features);
    default:
      return ForFeatures<Kernel, T, 4>(call.n_features);
  }
}

template <template <class, size_t, size_t> class Kernel>
RowsFn ForCall(const HashEncodeCall& call) {
  switch (call.type) {
    case FeatureType::kFloat:
      return ForDims<Kernel, Float>(call);
    case FeatureType::kHalf:
      return ForDims<Kernel, Half>(call);
    default:
      return ForDims<Kernel, Bfloat16>(call);
  }
}

using PrepareFn = void (*)(const HashEncodeCall&, const HashEncodeLevel&, int64_t, size_t, bool,
                           Block&);

inline PrepareFn PrepareForCall(const HashEncodeCall& call) {
  return call.n_dims == 2   ? &PrepareBlock<2>
         : call.n_dims == 3 ? &PrepareBlock<3>
                            : &PrepareBlock<4>;
}

inline size_t BlockSize(int64_t first, int64_t end) {
  return static_cast<size_t>(end - first < int64_t{kBlock} ? end - first : int64_t{kBlock});
}

// The rows that are prefetched past a block's end: any valid ones.
inline void ClearAhead(Block& block) {
  for (auto& rows : block.rows) std::memset(rows, 0, sizeof(rows));
}

// `from` is [*, n_levels * n_features]: the place of a point's features of a level.
inline const void* FeaturesAt(const HashEncodeCall& call, const void* from, int64_t point,
                              int64_t level) {
  const int64_t index = (point * call.n_levels + level) * call.n_features;
  return static_cast<const char*>(from) + index * SizeOf(call.type);
}

inline const void* LevelTable(const HashEncodeCall& call, const HashEncodeLevel& level) {
  return static_cast<const char*>(call.table) +
         int64_t{level.offset} * call.n_features * SizeOf(call.type);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_HASH_ENCODE_ROWS_INL_H_
