// A Highway vector with operators, so that a formula that is a template over its value type is one
// text for CPU kernels and shaders, where the type is float: kernels/msl/formula.h has the same
// functions for those. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_SIMD_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_SIMD_VECTOR_INL_H_
#undef METAL_OPS_KERNELS_SIMD_VECTOR_INL_H_
#else
#define METAL_OPS_KERNELS_SIMD_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "kernels/msl/both.h"
#include "kernels/simd/math-inl.h"

#undef METAL_OPS_FORMULA
#define METAL_OPS_FORMULA HWY_INLINE

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The result of comparisons of vectors.
template <class D>
struct Lanewise {
  hn::Mask<D> mask;

  friend HWY_INLINE Lanewise operator&&(Lanewise a, Lanewise b) {
    return {hn::And(a.mask, b.mask)};
  }
  friend HWY_INLINE Lanewise operator||(Lanewise a, Lanewise b) { return {hn::Or(a.mask, b.mask)}; }
  friend HWY_INLINE Lanewise operator!(Lanewise a) { return {hn::Not(a.mask)}; }
  friend HWY_INLINE bool any_of(Lanewise a) { return !hn::AllFalse(D(), a.mask); }
};

template <class D>
struct Vector {
  using T = hn::TFromD<D>;
  using Bool = Lanewise<D>;

  hn::Vec<D> v;

  Vector() = default;
  HWY_INLINE Vector(T x) : v(hn::Set(D(), x)) {}
  HWY_INLINE explicit Vector(hn::Vec<D> x) : v(x) {}
  static HWY_INLINE Vector Load(const T* from) { return Vector(hn::LoadU(D(), from)); }
  HWY_INLINE void Store(T* to) const { hn::StoreU(v, D(), to); }
  static HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

  friend HWY_INLINE Vector operator-(Vector a) { return Vector(hn::Neg(a.v)); }
  friend HWY_INLINE Vector operator+(Vector a, Vector b) { return Vector(hn::Add(a.v, b.v)); }
  friend HWY_INLINE Vector operator-(Vector a, Vector b) { return Vector(hn::Sub(a.v, b.v)); }
  friend HWY_INLINE Vector operator*(Vector a, Vector b) { return Vector(hn::Mul(a.v, b.v)); }
  friend HWY_INLINE Vector operator/(Vector a, Vector b) { return Vector(hn::Div(a.v, b.v)); }
  friend HWY_INLINE Bool operator==(Vector a, Vector b) { return {hn::Eq(a.v, b.v)}; }
  // NaN is unequal to all, which Highway leaves to the instruction set.
  friend HWY_INLINE Bool operator!=(Vector a, Vector b) { return !(a == b); }
  friend HWY_INLINE Bool operator<(Vector a, Vector b) { return {hn::Lt(a.v, b.v)}; }
  friend HWY_INLINE Bool operator<=(Vector a, Vector b) { return {hn::Le(a.v, b.v)}; }
  friend HWY_INLINE Bool operator>(Vector a, Vector b) { return {hn::Gt(a.v, b.v)}; }
  friend HWY_INLINE Bool operator>=(Vector a, Vector b) { return {hn::Ge(a.v, b.v)}; }

  // `b` where the condition holds, else `a`.
  friend HWY_INLINE Vector select(Vector a, Vector b, Bool condition) {
    return Vector(hn::IfThenElse(condition.mask, b.v, a.v));
  }
  // a b + c, a b - c, c - a b: rounded once where the processor has that instruction.
  friend HWY_INLINE Vector fma(Vector a, Vector b, Vector c) {
    return Vector(hn::MulAdd(a.v, b.v, c.v));
  }
  friend HWY_INLINE Vector fms(Vector a, Vector b, Vector c) {
    return Vector(hn::MulSub(a.v, b.v, c.v));
  }
  friend HWY_INLINE Vector fnma(Vector a, Vector b, Vector c) {
    return Vector(hn::NegMulAdd(a.v, b.v, c.v));
  }
  // a b - c, rounded once everywhere.
  friend HWY_INLINE Vector exact_fms(Vector a, Vector b, Vector c) {
#if HWY_NATIVE_FMA
    return fms(a, b, c);
#else
    HWY_ALIGN T lanes[3][hn::MaxLanes(D())];
    a.Store(lanes[0]);
    b.Store(lanes[1]);
    c.Store(lanes[2]);
    for (int64_t i = 0; i < Lanes(); ++i) {
      lanes[0][i] = std::fma(lanes[0][i], lanes[1][i], -lanes[2][i]);
    }
    return Load(lanes[0]);
#endif
  }
  friend HWY_INLINE Vector fabs(Vector a) { return Vector(hn::Abs(a.v)); }
  friend HWY_INLINE Vector max(Vector a, Vector b) { return Vector(hn::Max(a.v, b.v)); }
  friend HWY_INLINE Vector rint(Vector a) { return Vector(hn::Round(a.v)); }
  friend HWY_INLINE Vector sqrt(Vector a) { return Vector(hn::Sqrt(a.v)); }
  friend HWY_INLINE Vector copysign(Vector a, Vector b) { return Vector(hn::CopySign(a.v, b.v)); }
  friend HWY_INLINE Vector precise_exp(Vector a) { return Vector(SafeExp(D(), a.v)); }
  friend HWY_INLINE Vector precise_expm1(Vector a) { return Vector(SafeExpm1(D(), a.v)); }
  // For normal numbers above 0.
  friend HWY_INLINE Vector precise_log(Vector a) { return Vector(hn::Log(D(), a.v)); }
  friend HWY_INLINE Vector precise_log1p(Vector a) { return Vector(SafeLog1p(D(), a.v)); }
};

using Floats = Vector<hn::ScalableTag<float>>;

// Calls body(load, store) for one vector of n elements after the other, the last one in part:
// load(from) is that vector of an array, store(x, to) writes it. Lanes beyond n mean nothing.
template <typename Body>
HWY_INLINE void ForVectors(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + Floats::Lanes() <= n; i += Floats::Lanes()) {
    body([i](const float* from) HWY_ATTR { return Floats::Load(from + i); },
         [i](Floats x, float* to) HWY_ATTR { x.Store(to + i); });
  }
  if (i == n) return;
  HWY_ALIGN float lanes[hn::MaxLanes(hn::ScalableTag<float>())] = {};
  body(
      [&, i, n](const float* from) HWY_ATTR {
        for (int64_t k = i; k < n; ++k) lanes[k - i] = from[k];
        return Floats::Load(lanes);
      },
      [&, i, n](Floats x, float* to) HWY_ATTR {
        x.Store(lanes);
        for (int64_t k = i; k < n; ++k) to[k] = lanes[k - i];
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_SIMD_VECTOR_INL_H_
