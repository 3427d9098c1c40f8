// HashEncodeGrad and HashEncodeJvpGrad: gradients of the table. No atomics: a range of rows has one
// owner.

#include "kernels/hash_encode/hash_encode_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hash_encode/hash_encode_table_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/hash_encode/hash_encode_rows-inl.h"
#include "kernels/hash_encode/hash_encode_simd.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// sums[rows[c][p]] += weights[c][p] * incoming[p]
template <class T, size_t D, size_t F>
struct Scatter {
  static void Run(Block& HWY_RESTRICT block, const RowsArgs& args) {
    using Raw = typename T::Raw;
    constexpr size_t kCorners = size_t{1} << D;
    const hn::CappedTag<float, F> d;
    const size_t lanes = hn::Lanes(d);
    const Raw* HWY_RESTRICT incoming = static_cast<const Raw*>(args.incoming);
    float* HWY_RESTRICT sums = args.sums;

    for (size_t p = 0; p < args.n; ++p) {
      for (size_t c = 0; c < kCorners; ++c) {
        __builtin_prefetch(sums + size_t{block.rows[c][p + kAhead]} * F, 1, 3);
      }
      for (size_t f = 0; f < F; f += lanes) {
        const auto g = T::Load(d, incoming + static_cast<int64_t>(p) * args.stride + f);
        for (size_t c = 0; c < kCorners; ++c) {
          float* row = sums + size_t{block.rows[c][p]} * F + f;
          hn::StoreU(hn::MulAdd(hn::Set(d, block.weights[c][p]), g, hn::LoadU(d, row)), d, row);
        }
      }
    }
  }
};

// Rows of the range counted from its start; all others become one of the dump rows after it, one a
// corner so that their sums do not wait for each other.
void KeepRange(uint32_t row_begin, uint32_t row_end, size_t n_corners, size_t n, Block& block) {
  const DU du;
  const VU begin = hn::Set(du, row_begin);
  for (size_t c = 0; c < n_corners; ++c) {
    const VU size = hn::Set(du, row_end - row_begin);
    const VU dump = hn::Set(du, row_end - row_begin + static_cast<uint32_t>(c));
    for (size_t i = 0; i < n; i += hn::Lanes(du)) {
      const VU row = hn::Sub(hn::Load(du, block.rows[c] + i), begin);
      hn::Store(hn::IfThenElse(hn::Lt(row, size), row, dump), du, block.rows[c] + i);
    }
  }
}

void SumTableRange(const HashEncodeCall& call, int64_t l, uint32_t row_begin, uint32_t row_end,
                   float* sums) {
  const RowsFn scatter = ForCall<Scatter>(call);
  const PrepareFn prepare = PrepareForCall(call);
  const HashEncodeLevel& level = call.levels[l];
  const bool whole = row_begin == 0 && row_end == level.size;
  Block block;
  ClearAhead(block);
  RowsArgs args = {};
  args.stride = call.n_levels * call.n_features;
  args.sums = sums;
  for (int64_t first = 0; first < call.n_points; first += kBlock) {
    args.n = BlockSize(first, call.n_points);
    args.incoming = FeaturesAt(call, call.incoming, first, l);
    prepare(call, level, first, args.n, true, block);
    if (!whole) KeepRange(row_begin, row_end, size_t{1} << call.n_dims, args.n, block);
    scatter(block, args);
  }
}

void RoundRange(FeatureType type, const float* from, int64_t n, void* to) {
  if (type == FeatureType::kHalf) {
    Half::Round(from, static_cast<size_t>(n), static_cast<uint16_t*>(to));
  } else {
    Bfloat16::Round(from, static_cast<size_t>(n), static_cast<uint16_t*>(to));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(SumTableRange);
HWY_EXPORT(RoundRange);

void SumTableGradients(const HashEncodeCall& call, int64_t level, uint32_t row_begin,
                       uint32_t row_end, float* sums) {
  HWY_DYNAMIC_DISPATCH(SumTableRange)(call, level, row_begin, row_end, sums);
}

void RoundFromFloat(FeatureType type, const float* from, int64_t n, void* to) {
  HWY_DYNAMIC_DISPATCH(RoundRange)(type, from, n, to);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
