// HashEncode and HashEncodeJvp: interpolating the table.

#include "kernels/hash_encode/hash_encode_targets.h"

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
    const size_t lanes = hn::Lanes(d);
    const Raw* HWY_RESTRICT table = static_cast<const Raw*>(args.table);
    Raw* HWY_RESTRICT outputs = static_cast<Raw*>(args.outputs);
    HWY_ALIGN float rounded[kBlock * F];

    for (size_t p = 0; p < args.n; ++p) {
      for (size_t c = 0; c < kCorners; ++c) {
        hwy::Prefetch(table + size_t{block.rows[c][p + kAhead]} * F);
      }
      for (size_t f = 0; f < F; f += lanes) {
        auto sum = hn::Zero(d);
        for (size_t c = 0; c < kCorners; ++c) {
          const auto row = T::Load(d, table + size_t{block.rows[c][p]} * F + f);
          sum = hn::MulAdd(hn::Set(d, block.weights[c][p]), row, sum);
        }
        if constexpr (sizeof(Raw) == 4) {
          hn::StoreU(sum, d, outputs + static_cast<int64_t>(p) * args.stride + f);
        } else {
          hn::StoreU(sum, d, rounded + p * F + f);
        }
      }
    }
    if constexpr (sizeof(Raw) == 2) {
      Raw narrow[kBlock * F];
      T::Round(rounded, args.n * F, narrow);
      for (size_t p = 0; p < args.n; ++p) {
        std::memcpy(outputs + static_cast<int64_t>(p) * args.stride, narrow + p * F,
                    F * sizeof(Raw));
      }
    }
  }
};

void EncodeRange(const HashEncodeCall& call, int64_t begin, int64_t end, void* outputs) {
  const RowsFn interpolate = ForCall<Interpolate>(call);
  const PrepareFn prepare = PrepareForCall(call);
  Block block;
  ClearAhead(block);
  RowsArgs args = {};
  args.stride = call.n_levels * call.n_features;
  // Level by level: a level fits the cache where the table does not.
  for (int64_t l = 0; l < call.n_levels; ++l) {
    const HashEncodeLevel& level = call.levels[l];
    args.table = LevelTable(call, level);
    for (int64_t first = begin; first < end; first += kBlock) {
      args.n = BlockSize(first, end);
      args.outputs = const_cast<void*>(FeaturesAt(call, outputs, first, l));
      prepare(call, level, first, args.n, true, block);
      interpolate(block, args);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(EncodeRange);

void EncodePoints(const HashEncodeCall& call, int64_t begin, int64_t end, void* outputs) {
  HWY_DYNAMIC_DISPATCH(EncodeRange)(call, begin, end, outputs);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
