// HashEncodePointGrad and HashEncodeJvpPointGrad: gradients of the points.

#include "kernels/hash_encode/hash_encode_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hash_encode/hash_encode_points_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/hash_encode/hash_encode_rows-inl.h"
#include "kernels/hash_encode/hash_encode_simd.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// weights[c][p] = <incoming[p], table[rows[c][p]]>
template <class T, size_t D, size_t F>
struct Dots {
  static void Run(Block& HWY_RESTRICT block, const RowsArgs& args) {
    using Raw = typename T::Raw;
    constexpr size_t kCorners = size_t{1} << D;
    const hn::CappedTag<float, F> d;
    const size_t lanes = hn::Lanes(d);
    const Raw* HWY_RESTRICT table = static_cast<const Raw*>(args.table);
    const Raw* HWY_RESTRICT incoming = static_cast<const Raw*>(args.incoming);

    for (size_t p = 0; p < args.n; ++p) {
      for (size_t c = 0; c < kCorners; ++c) {
        hwy::Prefetch(table + size_t{block.rows[c][p + kAhead]} * F);
      }
      const Raw* HWY_RESTRICT g = incoming + static_cast<int64_t>(p) * args.stride;
      for (size_t c = 0; c < kCorners; ++c) {
        const Raw* row = table + size_t{block.rows[c][p]} * F;
        auto sum = hn::Mul(T::Load(d, g), T::Load(d, row));
        for (size_t f = lanes; f < F; f += lanes) {
          sum = hn::MulAdd(T::Load(d, g + f), T::Load(d, row + f), sum);
        }
        block.weights[c][p] = hn::GetLane(hn::SumOfLanes(d, sum));
      }
    }
  }
};

using FinishFn = void (*)(const HashEncodeCall&, const HashEncodeLevel&, int64_t, size_t, bool,
                          const Block&, float*);

void SumPointsRange(const HashEncodeCall& call, int64_t begin, int64_t end, float* gradients) {
  const RowsFn dots = ForCall<Dots>(call);
  const PrepareFn prepare = PrepareForCall(call);
  const FinishFn finish = call.n_dims == 2   ? &FinishPointGradients<2>
                          : call.n_dims == 3 ? &FinishPointGradients<3>
                                             : &FinishPointGradients<4>;
  Block block;
  ClearAhead(block);
  RowsArgs args = {};
  args.stride = call.n_levels * call.n_features;
  for (int64_t l = 0; l < call.n_levels; ++l) {
    const HashEncodeLevel& level = call.levels[l];
    args.table = LevelTable(call, level);
    for (int64_t first = begin; first < end; first += kBlock) {
      args.n = BlockSize(first, end);
      args.incoming = FeaturesAt(call, call.incoming, first, l);
      prepare(call, level, first, args.n, false, block);
      dots(block, args);
      finish(call, level, first, args.n, l == 0, block, gradients);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(SumPointsRange);

void SumPointGradients(const HashEncodeCall& call, int64_t begin, int64_t end, float* gradients) {
  HWY_DYNAMIC_DISPATCH(SumPointsRange)(call, begin, end, gradients);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
