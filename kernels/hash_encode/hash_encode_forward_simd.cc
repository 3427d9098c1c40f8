// HashEncode and HashEncodeJvp: interpolating the table.

#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hash_encode/hash_encode_forward_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/hash_encode/hash_encode_rows-inl.h"
#include "kernels/hash_encode/hash_encode_simd.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// outputs[p] = sum_c weights[c][p] * table[rows[c][p]]
template <class T, size_t D, size_t F>
struct Interpolate {
  static void Run(Block& HWY_RESTRICT block, const RowsArgs& args) {
    using Raw = typename T::Raw;
    constexpr size_t kCorners = size_t{1} << D;
    const hn::CappedTag<float, F> d;
    const Raw* HWY_RESTRICT table = static_cast<const Raw*>(args.table);
    for (size_t p = 0; p < args.n; ++p) {
      PrefetchRows<kCorners, F * sizeof(Raw), false>(block, p, table);
      for (size_t f = 0; f < F; f += hn::Lanes(d)) {
        auto sum = hn::Zero(d);
        for (size_t c = 0; c < kCorners; ++c) {
          const auto row = T::Load(d, table + size_t{block.rows[c][p]} * F + f);
          sum = hn::MulAdd(hn::Set(d, block.weights[c][p]), row, sum);
        }
        hn::StoreU(sum, d, args.outputs + p * F + f);
      }
    }
  }
};

void EncodeLevelT(const HashEncodeCall& call, int64_t l, PointRange range, float* features) {
  const RowsFn interpolate = ForCall<Interpolate>(call);
  const PrepareFn prepare = PrepareForCall(call);
  const HashEncodeLevel& level = call.levels[l];
  Block block;
  ClearAhead(block);
  StreamIn(call, level, range.size());
  for (int64_t first = range.begin; first < range.end; first += kBlock) {
    const size_t n = BlockSize(first, range.end);
    float* const outputs = features + (first - range.begin) * call.n_features;
    prepare(call, level, first, n, true, block);
    interpolate(block, {LevelTable(call, level), nullptr, outputs, n});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(EncodeLevelT);

void EncodeLevel(const HashEncodeCall& call, int64_t l, PointRange range, float* features) {
  HWY_DYNAMIC_DISPATCH(EncodeLevelT)(call, l, range, features);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
