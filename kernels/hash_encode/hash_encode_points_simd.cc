// HashEncodePointGrad and HashEncodeJvpPointGrad: gradients of the points.

#include "kernels/simd/simd_targets.h"

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

// weights[c][p] = <d_outputs[p], table[rows[c][p]]>
template <class T, size_t D, size_t F>
struct Dots {
  static void Run(Block& HWY_RESTRICT block, const RowsArgs& args) {
    using Raw = typename T::Raw;
    constexpr size_t kCorners = size_t{1} << D;
    const hn::CappedTag<float, F> d;
    const Raw* HWY_RESTRICT table = static_cast<const Raw*>(args.table);
    for (size_t p = 0; p < args.n; ++p) {
      PrefetchRows<kCorners, F * sizeof(Raw), false>(block, p, table);
      const float* HWY_RESTRICT g = args.d_outputs + p * F;
      for (size_t c = 0; c < kCorners; ++c) {
        const Raw* row = table + size_t{block.rows[c][p]} * F;
        auto sum = hn::Mul(hn::LoadU(d, g), T::Load(d, row));
        for (size_t f = hn::Lanes(d); f < F; f += hn::Lanes(d)) {
          sum = hn::MulAdd(hn::LoadU(d, g + f), T::Load(d, row + f), sum);
        }
        block.weights[c][p] = hn::GetLane(hn::SumOfLanes(d, sum));
      }
    }
  }
};

using FinishFn = void (*)(const HashEncodeCall&, const HashEncodeLevel&, int64_t, size_t, bool,
                          const Block&, float*);

FinishFn FinishForCall(const HashEncodeCall& call) {
  switch (call.n_dims) {
    case 2:
      return &FinishPointGradients<2>;
    case 3:
      return &FinishPointGradients<3>;
    default:
      return &FinishPointGradients<4>;
  }
}

void SumPointGradientsT(const HashEncodeCall& call, int64_t l, PointRange range,
                        const float* d_outputs, bool overwrite, float* gradients) {
  const RowsFn dots = ForCall<Dots>(call);
  const PrepareFn prepare = PrepareForCall(call);
  const FinishFn finish = FinishForCall(call);
  const HashEncodeLevel& level = call.levels[l];
  Block block;
  ClearAhead(block);
  StreamIn(call, level, range.size());
  for (int64_t first = range.begin; first < range.end; first += kBlock) {
    const size_t n = BlockSize(first, range.end);
    const int64_t done = first - range.begin;
    prepare(call, level, first, n, false, block);
    dots(block, {LevelTable(call, level), d_outputs + done * call.n_features, nullptr, n});
    finish(call, level, first, n, overwrite, block, gradients + done * call.n_dims);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(SumPointGradientsT);

void SumPointGradients(const HashEncodeCall& call, int64_t l, PointRange range,
                       const float* d_outputs, bool overwrite, float* gradients) {
  HWY_DYNAMIC_DISPATCH(SumPointGradientsT)(call, l, range, d_outputs, overwrite, gradients);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
