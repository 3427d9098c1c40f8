// Shared by reading and adding to the table's rows. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_HASH_ENCODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_HASH_ENCODE_ROWS_INL_H_
#undef METAL_OPS_HASH_ENCODE_ROWS_INL_H_
#else
#define METAL_OPS_HASH_ENCODE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/hash_encode/hash_encode_cells-inl.h"
#include "kernels/hash_encode/hash_encode_simd.h"
#include "kernels/simd/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// How the table's features are stored. `Raw` is the pointed-to type.
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
    return LoadHalves(d, from);
  }
};

struct Bfloat16 {
  using Raw = uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Raw* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<uint32_t, D> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
  }
};

// Second half of a block's work. Pointers are at the level's first row and the block's first point.
struct RowsArgs {
  const void* table;       // [rows, F]
  const float* d_outputs;  // [n, F]
  float* outputs;          // [n, F] features, or [rows, F] sums
  size_t n;
};

using RowsFn = void (*)(Block&, const RowsArgs&);

// Prefetches the rows of a point ahead. Corners differ first along x, where neighbours mostly share
// a cache line.
template <size_t kCorners, size_t kRowBytes, bool kWrite>
HWY_INLINE void PrefetchRows(const Block& block, size_t p, const void* rows) {
  for (size_t c = 0; c < kCorners; c += 2) {
    const char* const row =
        static_cast<const char*>(rows) + size_t{block.rows[c][p + kAhead]} * kRowBytes;
    __builtin_prefetch(row, kWrite, 3);
  }
}

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
    case FloatType::kFloat:
      return ForDims<Kernel, Float>(call);
    case FloatType::kHalf:
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

inline const void* LevelTable(const HashEncodeCall& call, const HashEncodeLevel& level) {
  return static_cast<const char*>(call.table) +
         int64_t{level.offset} * call.n_features * BytesOf(call.type);
}

// Reads a level once from end to end, if its points will read most of it anyway: the hardware
// streams that several times faster than it can fetch the same lines in random order. (Prefetch
// instructions did not have the effect.)
inline void StreamIn(const HashEncodeCall& call, const HashEncodeLevel& level, int64_t n_points) {
  constexpr int64_t kLine = 64;
  const int64_t bytes = int64_t{level.size} * call.n_features * BytesOf(call.type);
  if (bytes / kLine > 2 * n_points) return;
  const volatile char* const table = static_cast<const char*>(LevelTable(call, level));
  for (int64_t i = 0; i < bytes; i += kLine) static_cast<void>(table[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_HASH_ENCODE_ROWS_INL_H_
