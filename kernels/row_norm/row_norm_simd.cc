// RowNorm and its gradient on the CPU: a row after the other, which is in the cache after the first
// look at it.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/row_norm/row_norm_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_norm/row_norm_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

HWY_INLINE float SumOf(Floats x) {
  HWY_ALIGN float lanes[hn::MaxLanes(hn::ScalableTag<float>())];
  x.Store(lanes);
  float sum = 0;
  for (int64_t i = 0; i < Floats::Lanes(); ++i) sum += lanes[i];
  return sum;
}

// Calls whole(i) with each whole vector of n elements, then one(i) with each that is left.
template <typename Whole, typename One>
HWY_INLINE void ForRow(int64_t n, const Whole& whole, const One& one) {
  int64_t i = 0;
  for (; i + Floats::Lanes() <= n; i += Floats::Lanes()) whole(i);
  for (; i < n; ++i) one(i);
}

void RowNorm(CpuCall& call) {
  RowNormParams p = ToRowNormParams(call);
  const int64_t n = p.columns;
  if (n == 0) {  // means of nothing
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(call.out<float>(1), p.rows, p.center != 0 ? nan : 0.0f);
    std::fill_n(call.out<float>(2), p.rows, nan);
    return;
  }
  const MutableFloatArray y = call.float_out(0);
  std::vector<float> wide(2 * n);
  const float* const scale = call.Read(1, 0, n, wide.data());
  const bool use_offset = call.inputs[2].n_elements > 0;
  const float* const offset = use_offset ? call.Read(2, 0, n, wide.data() + n) : nullptr;
  call.ParallelFor(p.rows, n, [&](int64_t begin, int64_t end) {
    std::vector<float> room(2 * n);
    for (int64_t row = begin; row < end; ++row) {
      const float* const x = call.Read(0, row * n, n, room.data());
      float* const to = y.Piece(row * n, room.data() + n);
      float mean = 0;
      if (p.center != 0) {
        Floats sums(0.0f);
        float rest = 0;
        ForRow(
            n, [&](int64_t i) HWY_ATTR { sums = sums + Floats::Load(x + i); },
            [&](int64_t i) { rest += x[i]; });
        mean = (SumOf(sums) + rest) / static_cast<float>(n);
      }
      // The mean's rounding error is found on the way.
      Floats squares(0.0f), errors(0.0f);
      float rest = 0, error = 0;
      ForRow(
          n,
          [&](int64_t i) HWY_ATTR {
            const Floats d = Floats::Load(x + i) - Floats(mean);
            squares = fma(d, d, squares);
            errors = errors + d;
          },
          [&](int64_t i) {
            rest += (x[i] - mean) * (x[i] - mean);
            error += x[i] - mean;
          });
      error = p.center != 0 ? (SumOf(errors) + error) / static_cast<float>(n) : 0.0f;
      const float square = (SumOf(squares) + rest) / static_cast<float>(n) - error * error;
      mean += error;
      const float factor = 1.0f / std::sqrt((square < 0 ? 0.0f : square) + p.epsilon);
      ForRow(
          n,
          [&](int64_t i) HWY_ATTR {
            const Floats d = (Floats::Load(x + i) - Floats(mean)) * factor;
            const Floats scaled = d * Floats::Load(scale + i);
            (use_offset ? scaled + Floats::Load(offset + i) : scaled).Store(to + i);
          },
          [&](int64_t i) {
            to[i] = (x[i] - mean) * factor * scale[i] + (use_offset ? offset[i] : 0.0f);
          });
      y.Store(row * n, n, to);
      call.out<float>(1)[row] = mean;
      call.out<float>(2)[row] = factor;
    }
  });
}

// d_x of a row; adds its part of d_scale and d_offset.
HWY_INLINE void RowGradient(const RowNormParams& p, const float* d, const float* x,
                            const float* scale, float mean, float factor, float* d_x,
                            float* d_scale, float* d_offset) {
  const int64_t n = p.columns;
  const Floats middle(mean), by(factor);
  Floats sums(0.0f), products(0.0f);
  float sum = 0, product = 0;
  ForRow(
      n,
      [&](int64_t i) HWY_ATTR {
        const Floats normal = (Floats::Load(x + i) - middle) * by, into = Floats::Load(d + i);
        const Floats g = into * Floats::Load(scale + i);
        sums = sums + g;
        products = fma(g, normal, products);
        fma(into, normal, Floats::Load(d_scale + i)).Store(d_scale + i);
        (into + Floats::Load(d_offset + i)).Store(d_offset + i);
      },
      [&](int64_t i) {
        const float normal = (x[i] - mean) * factor;
        sum += d[i] * scale[i];
        product += d[i] * scale[i] * normal;
        d_scale[i] += d[i] * normal;
        d_offset[i] += d[i];
      });
  const float size = static_cast<float>(n);
  sum = p.center != 0 ? (SumOf(sums) + sum) / size : 0.0f;
  product = (SumOf(products) + product) / size;
  ForRow(
      n,
      [&](int64_t i) HWY_ATTR {
        const Floats normal = (Floats::Load(x + i) - middle) * by;
        const Floats g = fms(Floats::Load(d + i), Floats::Load(scale + i), Floats(sum));
        (fnma(normal, Floats(product), g) * by).Store(d_x + i);
      },
      [&](int64_t i) {
        const float normal = (x[i] - mean) * factor;
        d_x[i] = (d[i] * scale[i] - sum - normal * product) * factor;
      });
}

void RowNormGrad(CpuCall& call) {
  const RowNormParams p = ToRowNormParams(call);
  const int64_t n = p.columns;
  if (n == 0) return;  // nor has any gradient an element
  const MutableFloatArray d_x = call.float_out(0);
  std::vector<float> wide(n);
  const float* const scale = call.Read(2, 0, n, wide.data());
  // Per part, d_scale and d_offset.
  std::vector<float> sums(2 * n * std::max<int64_t>(p.n_parts, 1), 0.0f);
  call.ParallelFor(p.n_parts, 2 * n * p.part_rows, [&](int64_t begin, int64_t end) {
    std::vector<float> room(3 * n);
    for (int64_t part = begin; part < end; ++part) {
      const int64_t last = std::min(p.rows, (part + 1) * p.part_rows);
      for (int64_t row = part * p.part_rows; row < last; ++row) {
        float* const to = d_x.Piece(row * n, room.data() + 2 * n);
        RowGradient(p, call.Read(0, row * n, n, room.data()),
                    call.Read(1, row * n, n, room.data() + n), scale, call.in<float>(3)[row],
                    call.in<float>(4)[row], to, &sums[2 * n * part], &sums[2 * n * part] + n);
        d_x.Store(row * n, n, to);
      }
    }
  });
  for (int64_t part = 1; part < p.n_parts; ++part) {
    for (int64_t i = 0; i < 2 * n; ++i) sums[i] += sums[2 * n * part + i];
  }
  for (int output : {1, 2}) {
    const MutableFloatArray to = call.float_out(output);
    NarrowFloats(to.type, sums.data() + (output - 1) * n, n, to.data);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("RowNorm", RowNorm);
SIMD_KERNEL("RowNormGrad", RowNormGrad);
}  // namespace metal_ops
#endif  // HWY_ONCE
