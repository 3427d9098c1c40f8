// HashEncodeGrad and HashEncodeJvpGrad: gradients of the table. No atomics: every row has one
// owner.

#include "kernels/simd/simd_targets.h"

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

// outputs[rows[c][p]] += weights[c][p] * d_outputs[p]. The table's type does not matter: sums are
// float32.
template <class T, size_t D, size_t F>
struct Scatter {
  static void Run(Block& HWY_RESTRICT block, const RowsArgs& args) {
    constexpr size_t kCorners = size_t{1} << D;
    const hn::CappedTag<float, F> d;
    float* HWY_RESTRICT sums = args.outputs;
    for (size_t p = 0; p < args.n; ++p) {
      PrefetchRows<kCorners, F * sizeof(float), true>(block, p, sums);
      for (size_t f = 0; f < F; f += hn::Lanes(d)) {
        const auto g = hn::LoadU(d, args.d_outputs + p * F + f);
        for (size_t c = 0; c < kCorners; ++c) {
          float* const row = sums + size_t{block.rows[c][p]} * F + f;
          hn::StoreU(hn::MulAdd(hn::Set(d, block.weights[c][p]), g, hn::LoadU(d, row)), d, row);
        }
      }
    }
  }
};

// Rows of the part counted from its start; all others become one of the dump rows after it, one a
// corner so that their sums do not wait for each other.
void KeepPart(uint32_t row_begin, uint32_t row_end, size_t n_corners, size_t n, Block& block) {
  const DU du;
  const VU begin = hn::Set(du, row_begin);
  const VU size = hn::Set(du, row_end - row_begin);
  for (size_t c = 0; c < n_corners; ++c) {
    const VU dump = hn::Add(size, hn::Set(du, static_cast<uint32_t>(c)));
    for (size_t i = 0; i < n; i += hn::Lanes(du)) {
      const VU row = hn::Sub(hn::Load(du, block.rows[c] + i), begin);
      hn::Store(hn::IfThenElse(hn::Lt(row, size), row, dump), du, block.rows[c] + i);
    }
  }
}

void SumTableGradientsT(const HashEncodeCall& call, int64_t l, PointRange range,
                        const float* d_outputs, uint32_t row_begin, uint32_t row_end, float* sums) {
  const RowsFn scatter = ForDims<Scatter, Float>(call);
  const PrepareFn prepare = PrepareForCall(call);
  const HashEncodeLevel& level = call.levels[l];
  const bool whole = row_begin == 0 && row_end == level.size;
  Block block;
  ClearAhead(block);
  for (int64_t first = range.begin; first < range.end; first += kBlock) {
    const size_t n = BlockSize(first, range.end);
    prepare(call, level, first, n, true, block);
    if (!whole) KeepPart(row_begin, row_end, size_t{1} << call.n_dims, n, block);
    scatter(block, {nullptr, d_outputs + (first - range.begin) * call.n_features, sums, n});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(SumTableGradientsT);

void SumTableGradients(const HashEncodeCall& call, int64_t l, PointRange range,
                       const float* d_outputs, uint32_t row_begin, uint32_t row_end, float* sums) {
  HWY_DYNAMIC_DISPATCH(SumTableGradientsT)(call, l, range, d_outputs, row_begin, row_end, sums);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
