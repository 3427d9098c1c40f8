// MetalFusedBatchNormGrad on the CPU: a part of the rows after the other, twice.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_batch_norm_grad/fused_batch_norm_grad_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_formula.h"

// Calls work(part, its first row, the one behind its last).
template <typename Work>
void ForParts(CpuCall& call, const FusedBatchNormGradParams& p, const Work& work) {
  call.ParallelFor(p.n_parts, 3 * p.columns * p.part_rows, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      work(part, part * p.part_rows, std::min(p.rows, (part + 1) * p.part_rows));
    }
  });
}

void FusedBatchNormGrad(CpuCall& call) {
  const FusedBatchNormGradParams p = ToFusedBatchNormGradParams(call);
  const int64_t n = p.columns;
  if (n == 0) return;
  const MutableFloatArray d_x = call.float_out(0);
  const float* const mean = call.in<float>(4);
  // Of each part: what passes the ReLU, and its products with x - mean.
  std::vector<float> sums(2 * n * std::max<int64_t>(p.n_parts, 1), 0.0f);
  ForParts(call, p, [&](int64_t part, int64_t begin, int64_t end) HWY_ATTR {
    std::vector<float> room(4 * n);
    float *const total = &sums[2 * n * part], *const products = total + n;
    for (int64_t row = begin; row < end; ++row) {
      const float* const gradients = call.Read(0, row * n, n, room.data());
      const float* const features = call.Read(1, row * n, n, room.data() + n);
      const float* const x = call.Read(2, row * n, n, room.data() + 2 * n);
      float* const to = d_x.Piece(row * n, room.data() + 3 * n);
      ForVectors(n, [&](auto load, auto store) HWY_ATTR {
        const auto passed = norm_grad_passed(load(gradients), load(features), p.relu6 != 0);
        store(load(total) + passed, total);
        store(fma(passed, load(x) - load(mean), load(products)), products);
        store(passed, to);
      });
      d_x.Store(row * n, n, to);
    }
  });
  for (int64_t part = 1; part < p.n_parts; ++part) {
    for (int64_t i = 0; i < 2 * n; ++i) sums[i] += sums[2 * n * part + i];
  }
  const float count =
      p.training != 0 ? static_cast<float>(p.rows) : std::numeric_limits<float>::infinity();
  std::vector<float> factors(3 * n);
  float *const by = factors.data(), *const less = by + n, *const slopes = less + n;
  for (int64_t c = 0; c < n; ++c) {
    const float inverse = 1.0f / std::sqrt(call.in<float>(5)[c] + p.epsilon);
    const auto found =
        norm_grad_factors(sums[c], sums[n + c], call.in<float>(3)[c], inverse, count);
    call.out<float>(1)[c] = sums[n + c] * inverse;
    call.out<float>(2)[c] = sums[c];
    by[c] = found.by;
    less[c] = found.mean;
    slopes[c] = found.slope;
  }
  const FloatArray passed = {d_x.data, d_x.type};
  ForParts(call, p, [&](int64_t, int64_t begin, int64_t end) HWY_ATTR {
    std::vector<float> room(3 * n);
    for (int64_t row = begin; row < end; ++row) {
      const float* const from = passed.Read(row * n, n, room.data());
      const float* const x = call.Read(2, row * n, n, room.data() + n);
      float* const to = d_x.Piece(row * n, room.data() + 2 * n);
      ForVectors(n, [&](auto load, auto store) HWY_ATTR {
        store(norm_grad_slope(load(from), load(x) - load(mean), load(by), load(less), load(slopes)),
              to);
      });
      d_x.Store(row * n, n, to);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("MetalFusedBatchNormGrad", FusedBatchNormGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
