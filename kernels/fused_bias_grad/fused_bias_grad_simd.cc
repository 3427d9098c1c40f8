// MetalFusedBiasGrad on the CPU: a part of the rows after the other.

#include <algorithm>
#include <vector>

#include "kernels/fused_bias_grad/fused_bias_grad_call.h"
#include "kernels/gemm/epilogue_params.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_bias_grad/fused_bias_grad_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/fused_bias_grad/fused_bias_grad_formula.h"

// One row; adds it to the sums.
template <int kActivation>
void RowSlopes(int64_t n, float alpha, const float* gradients, const float* features, float* to,
               float* sums) {
  ForVectors(n, [&](auto load, auto store) HWY_ATTR {
    const auto slope = activation_gradient<kActivation>(load(gradients), load(features), alpha);
    store(load(sums) + slope, sums);
    store(slope, to);
  });
}

void FusedBiasGrad(CpuCall& call) {
  const FusedBiasGradParams p = ToFusedBiasGradParams(call);
  const int64_t n = p.columns;
  if (n == 0) return;
  static constexpr decltype(&RowSlopes<0>) kRows[] = {
      RowSlopes<0>, RowSlopes<1>, RowSlopes<2>, RowSlopes<3>, RowSlopes<4>,
      RowSlopes<5>, RowSlopes<6>, RowSlopes<7>, RowSlopes<8>, RowSlopes<9>};
  const auto row_slopes = kRows[p.activation];
  const MutableFloatArray backprops = call.float_out(0), d_bias = call.float_out(1);
  std::vector<float> sums(n * std::max<int64_t>(p.n_parts, 1), 0.0f);
  const auto of_planes = [&](int64_t begin, int64_t end) {
    constexpr int64_t kPiece = BIAS_GRAD_PLANE_PIECE;
    std::vector<float> room(3 * kPiece);
    for (int64_t plane = begin; plane < end; ++plane) {
      float totals[kPiece] = {};
      for (int64_t first = 0; first < p.part_rows; first += kPiece) {
        const int64_t at = plane * p.part_rows + first, m = std::min(kPiece, p.part_rows - first);
        float* const to = backprops.Piece(at, room.data() + 2 * kPiece);
        row_slopes(m, p.alpha, call.Read(0, at, m, room.data()),
                   call.Read(1, at, m, room.data() + kPiece), to, totals);
        backprops.Store(at, m, to);
      }
      for (const float total : totals) sums[plane] += total;
    }
  };
  const auto of_rows = [&](int64_t begin, int64_t end) {
    std::vector<float> room(3 * n);
    for (int64_t part = begin; part < end; ++part) {
      const int64_t last = std::min(p.rows, (part + 1) * p.part_rows);
      for (int64_t row = part * p.part_rows; row < last; ++row) {
        float* const to = backprops.Piece(row * n, room.data() + 2 * n);
        row_slopes(n, p.alpha, call.Read(0, row * n, n, room.data()),
                   call.Read(1, row * n, n, room.data() + n), to, &sums[n * part]);
        backprops.Store(row * n, n, to);
      }
    }
  };
  if (call.Text("data_format") == "NCHW") {
    call.ParallelFor(p.n_parts * n, 2 * p.part_rows, of_planes);
  } else {
    call.ParallelFor(p.n_parts, 2 * n * p.part_rows, of_rows);
  }
  for (int64_t part = 1; part < p.n_parts; ++part) {
    for (int64_t i = 0; i < n; ++i) sums[i] += sums[n * part + i];
  }
  NarrowFloats(d_bias.type, sums.data(), n, d_bias.data);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("MetalFusedBiasGrad", FusedBiasGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
