// Highway's exp and friends, made to pass NaN on (Highway's own turn it into a number). Compiled
// once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_SIMD_MATH_INL_H_
#undef METAL_OPS_KERNELS_SIMD_MATH_INL_H_
#else
#define METAL_OPS_KERNELS_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>
// Highway wants this order.
#include <hwy/contrib/math/math-inl.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V KeepNaN(D d, V x, V y) {
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V SafeExp(D d, V x) {
  // Past 88.73 Highway's exponent arithmetic runs over.
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V y = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.72283f)), infinity, hn::Exp(d, x));
  return KeepNaN(d, x, y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V SafeExpm1(D d, V x) {
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V y = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.72283f)), infinity, hn::Expm1(d, x));
  return KeepNaN(d, x, y);
}

// x >= 0 (or NaN).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SafeLog1p(D d, V x) {
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V y = hn::IfThenElse(hn::Eq(x, infinity), x, hn::Log1p(d, x));
  return KeepNaN(d, x, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_SIMD_MATH_INL_H_
