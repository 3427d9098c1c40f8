// Layer norm of a row within a step of RecurrentSequence (Ba, Kiros and Hinton 2016), on the CPU.
// Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_RECURRENT_RECURRENT_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_RECURRENT_RECURRENT_NORM_INL_H_
#undef METAL_OPS_KERNELS_RECURRENT_RECURRENT_NORM_INL_H_
#else
#define METAL_OPS_KERNELS_RECURRENT_RECURRENT_NORM_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// The sum of term(load) over n elements; `load` is that of a vector, or of one element at the end.
template <typename Term>
HWY_INLINE float SumOver(int64_t n, const Term& term) {
  using One = Vector<hn::CappedTag<float, 1>>;
  Floats sums(0.0f);
  One rest(0.0f);
  int64_t i = 0;
  for (; i + Floats::Lanes() <= n; i += Floats::Lanes()) {
    sums = sums + term([i](const float* from) HWY_ATTR { return Floats::Load(from + i); });
  }
  for (; i < n; ++i) {
    rest = rest + term([i](const float* from) HWY_ATTR { return One::Load(from + i); });
  }
  return hn::GetLane(hn::SumOfLanes(hn::ScalableTag<float>(), sums.v)) + hn::GetLane(rest.v);
}

struct RowMoments {
  float mean, factor;  // 1 / sqrt(variance + epsilon)
};

HWY_INLINE RowMoments MomentsOf(const float* x, int64_t n, float epsilon) {
  const float each = 1.0f / static_cast<float>(n);
  float mean = each * SumOver(n, [x](auto load) HWY_ATTR { return load(x); });
  // The mean's rounding error.
  mean += each * SumOver(n, [x, mean](auto load) HWY_ATTR { return load(x) - mean; });
  const float square = each * SumOver(n, [x, mean](auto load) HWY_ATTR {
                         const auto d = load(x) - mean;
                         return d * d;
                       });
  return {mean, 1.0f / std::sqrt(square + epsilon)};
}

// x of n elements in place: (x - mean) factor gamma.
HWY_INLINE void Normalize(float* x, const float* gamma, int64_t n, float epsilon) {
  const RowMoments m = MomentsOf(x, n, epsilon);
  ForVectors(n, [&](auto load, auto store)
                    HWY_ATTR { store((load(x) - m.mean) * m.factor * load(gamma), x); });
}

// From d, the slope of that, makes in place the one of `x` before it; adds gamma's to d_gamma.
HWY_INLINE void NormalizeBack(float* d, const float* x, const float* gamma, int64_t n,
                              float epsilon, float* d_gamma) {
  const RowMoments m = MomentsOf(x, n, epsilon);
  const float each = 1.0f / static_cast<float>(n);
  const float sum = each * SumOver(n, [&](auto load) HWY_ATTR { return load(d) * load(gamma); });
  const float product = each * SumOver(n, [&](auto load) HWY_ATTR {
                          return load(d) * load(gamma) * ((load(x) - m.mean) * m.factor);
                        });
  ForVectors(n, [&](auto load, auto store) HWY_ATTR {
    const Floats normal = (load(x) - m.mean) * m.factor, into = load(d);
    const Floats g = fms(into, load(gamma), Floats(sum));
    const Floats added = fma(into, normal, load(d_gamma));
    store(fnma(normal, Floats(product), g) * m.factor, d);
    store(added, d_gamma);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_RECURRENT_RECURRENT_NORM_INL_H_
