// Fused Adam and SGD: each element of variable, gradient and moments is touched once.

#include "kernels/fused_optimizer/fused_optimizer_simd.h"

#include <algorithm>

#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_optimizer/fused_optimizer_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Elements that half-precision variables are worked on at a time, a multiple of every vector.
constexpr int64_t kPiece = 512;

// n >= 1 elements with one update; `update(d, i)` does a vector at i, with a tag of 1 lane for the
// rest.
template <typename Real, class Update>
HWY_INLINE void ForElements(int64_t n, const Update& update) {
  const hn::ScalableTag<Real> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) update(d, i);
  const hn::CappedTag<Real, 1> one;
  for (; i < n; ++i) update(one, i);
}

// Which elements of a vector take their next value: all, or those of rows in use.
struct All {
  template <class V>
  HWY_INLINE V operator()(V next, V) const {
    return next;
  }
};

template <class M>
struct Where {
  M used;
  template <class V>
  HWY_INLINE V operator()(V next, V now) const {
    return hn::IfThenElse(used, next, now);
  }
};

template <typename Real>
struct Adam {
  AdamParams<Real> p;
  Real* m;
  Real* v;
  Real* hat;

  void Advance(int64_t n) {
    m += n;
    v += n;
    if (hat != nullptr) hat += n;
  }

  template <class D, class Choice, class V = hn::Vec<D>>
  HWY_INLINE V Run(D d, V x, V g, int64_t i, const Choice& choose) const {
    const V old_m = hn::LoadU(d, m + i), old_v = hn::LoadU(d, v + i);
    const V m_i = hn::MulAdd(hn::Sub(g, old_m), hn::Set(d, p.one_minus_beta1), old_m);
    V v_i = hn::MulAdd(hn::Sub(hn::Mul(g, g), old_v), hn::Set(d, p.one_minus_beta2), old_v);
    hn::StoreU(choose(m_i, old_m), d, m + i);
    hn::StoreU(choose(v_i, old_v), d, v + i);
    if (hat != nullptr) {
      const V old = hn::LoadU(d, hat + i);
      // A NaN in either must not be dropped.
      v_i = hn::IfThenElse(hn::Or(hn::Lt(old, v_i), hn::IsNaN(v_i)), v_i, old);
      hn::StoreU(choose(v_i, old), d, hat + i);
    }
    const V kept = hn::NegMulAdd(x, hn::Set(d, p.decay), x);
    const V size = hn::Add(hn::Sqrt(v_i), hn::Set(d, p.epsilon));
    return choose(hn::Sub(kept, hn::Div(hn::Mul(m_i, hn::Set(d, p.alpha)), size)), x);
  }
};

template <typename Real>
struct Sgd {
  SgdParams<Real> p;
  Real* m;
  bool nesterov;

  void Advance(int64_t n) {
    if (m != nullptr) m += n;
  }

  template <class D, class Choice, class V = hn::Vec<D>>
  HWY_INLINE V Run(D d, V x, V g, int64_t i, const Choice& choose) const {
    const V kept = hn::NegMulAdd(x, hn::Set(d, p.decay), x);
    const V step = hn::Mul(g, hn::Set(d, p.lr));
    if (m == nullptr) return choose(hn::Sub(kept, step), x);
    const V momentum = hn::Set(d, p.momentum), old_m = hn::LoadU(d, m + i);
    const V m_i = hn::MulSub(old_m, momentum, step);
    hn::StoreU(choose(m_i, old_m), d, m + i);
    return choose(hn::Add(kept, nesterov ? hn::MulSub(m_i, momentum, step) : m_i), x);
  }
};

// Elements [0, n) of x and g, with the state beginning at the same element.
template <typename Real, class Rule>
HWY_INLINE void Update(const Rule& rule, Real* HWY_RESTRICT x, const Real* HWY_RESTRICT g,
                       int64_t n) {
  ForElements<Real>(n, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(rule.Run(d, hn::LoadU(d, x + i), hn::LoadU(d, g + i), i, All()), d, x + i);
  });
}

// Lanes of which any in their row of kRow is set.
template <int kRow, class D, class M>
HWY_INLINE M AnyOfRow(D d, M mask) {
  if constexpr (kRow == 1) {
    return mask;
  } else {
    auto any = hn::VecFromMask(d, mask);
    any = hn::Or(any, hn::Reverse2(d, any));
    if constexpr (kRow >= 4) any = hn::Or(any, hn::Reverse4(d, any));
    if constexpr (kRow >= 8) any = hn::Or(any, hn::Reverse8(d, any));
    return hn::MaskFromVec(any);
  }
}

// Whole vectors of short rows, without a branch a row: which are in use is as good as random.
// Returns how many elements that were.
template <int kRow, typename Real, class Rule>
HWY_INLINE int64_t UpdateShortRows(const Rule& rule, Real* HWY_RESTRICT x,
                                   const Real* HWY_RESTRICT g, int64_t n) {
  const hn::ScalableTag<Real> d;
  int64_t i = 0;
  if constexpr (kRow <= hn::MaxLanes(d)) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      const auto g_i = hn::LoadU(d, g + i);
      const auto used = AnyOfRow<kRow>(d, hn::Ne(g_i, hn::Zero(d)));
      const Where<decltype(used)> where = {used};
      hn::StoreU(rule.Run(d, hn::LoadU(d, x + i), g_i, i, where), d, x + i);
    }
  }
  return i;
}

template <typename Real>
HWY_INLINE bool AllZero(const Real* g, int64_t n) {
  const hn::ScalableTag<Real> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if (!hn::AllTrue(d, hn::Eq(hn::LoadU(d, g + i), hn::Zero(d)))) return false;
  }
  for (; i < n; ++i) {
    if (g[i] != 0) return false;
  }
  return true;
}

// Rows with a gradient, in runs.
template <typename Real, class Rule>
HWY_INLINE void UpdateRows(Rule rule, Real* x, const Real* g, int64_t n, int64_t row) {
  // Whole empty stretches are left with a look at the gradient alone, whatever the row.
  const int64_t stretch = std::max<int64_t>(row, 64 / row * row);
  for (int64_t done = 0; done < n; done += stretch) {
    const int64_t end = std::min(n, done + stretch);
    if (AllZero(g + done, end - done)) continue;
    Rule from = rule;
    from.Advance(done);
    int64_t first = done;
    if (row == 1) first += UpdateShortRows<1>(from, x + done, g + done, end - done);
    if (row == 2) first += UpdateShortRows<2>(from, x + done, g + done, end - done);
    if (row == 4) first += UpdateShortRows<4>(from, x + done, g + done, end - done);
    if (row == 8) first += UpdateShortRows<8>(from, x + done, g + done, end - done);
    while (first < end) {
      if (AllZero(g + first, row)) {
        first += row;
        continue;
      }
      int64_t last = first + row;
      while (last < end && !AllZero(g + last, row)) last += row;
      Rule here = rule;
      here.Advance(first);
      Update(here, x + first, g + first, last - first);
      first = last;
    }
  }
}

template <typename Real, class Rule>
void UpdateRangeOf(Rule rule, FloatType type, void* x, const void* g, const UpdateRange& range) {
  rule.Advance(range.begin);
  const int64_t n = range.end - range.begin;
  if (type == FloatType::kFloat) {
    Real* const to = static_cast<Real*>(x) + range.begin;
    const Real* const from = static_cast<const Real*>(g) + range.begin;
    if (range.skip_zero_rows) {
      UpdateRows(rule, to, from, n, range.row);
    } else {
      Update(rule, to, from, n);
    }
    return;
  }
  if constexpr (sizeof(Real) == 4) {
    // A piece ends with a row where rows matter; a longer row is looked at as a whole.
    const bool skip = range.skip_zero_rows;
    float x_piece[kPiece], g_piece[kPiece];
    char* const x_bytes = static_cast<char*>(x);
    const char* const g_bytes = static_cast<const char*>(g);
    const int64_t piece = !skip || range.row > kPiece ? kPiece : kPiece / range.row * range.row;
    for (int64_t done = 0; done < n;) {
      int64_t limit = n;
      if (skip && range.row > kPiece) {
        limit = (done / range.row + 1) * range.row;
        bool zero = true;
        for (int64_t at = done; zero && at < limit; at += kPiece) {
          const int64_t size = std::min(kPiece, limit - at);
          WidenFloats(type, g_bytes + 2 * (range.begin + at), size, g_piece);
          zero = AllZero(g_piece, size);
        }
        if (zero) {
          done = limit;
          continue;
        }
      }
      int64_t size = 0;
      for (; done < limit; done += size) {
        size = std::min(piece, limit - done);
        WidenFloats(type, g_bytes + 2 * (range.begin + done), size, g_piece);
        WidenFloats(type, x_bytes + 2 * (range.begin + done), size, x_piece);
        Rule here = rule;
        here.Advance(done);
        if (skip && range.row <= kPiece) {
          UpdateRows(here, x_piece, g_piece, size, range.row);
        } else {
          Update(here, x_piece, g_piece, size);
        }
        NarrowFloats(type, x_piece, size, x_bytes + 2 * (range.begin + done));
      }
    }
  }
}

void AdamFloat(const AdamParams<float>& p, const AdamArrays<float>& a, const UpdateRange& range) {
  UpdateRangeOf<float>(Adam<float>{p, a.m, a.v, a.hat}, a.type, a.x, a.g, range);
}

void SgdFloat(const SgdParams<float>& p, const SgdArrays<float>& a, const UpdateRange& range) {
  UpdateRangeOf<float>(Sgd<float>{p, a.m, a.nesterov}, a.type, a.x, a.g, range);
}

#if HWY_HAVE_FLOAT64
void AdamDouble(const AdamParams<double>& p, const AdamArrays<double>& a,
                const UpdateRange& range) {
  UpdateRangeOf<double>(Adam<double>{p, a.m, a.v, a.hat}, a.type, a.x, a.g, range);
}

void SgdDouble(const SgdParams<double>& p, const SgdArrays<double>& a, const UpdateRange& range) {
  UpdateRangeOf<double>(Sgd<double>{p, a.m, a.nesterov}, a.type, a.x, a.g, range);
}
#else
#error "every target that this is compiled for has float64"
#endif

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(AdamFloat);
HWY_EXPORT(AdamDouble);
HWY_EXPORT(SgdFloat);
HWY_EXPORT(SgdDouble);

void UpdateAdam(const AdamParams<float>& params, const AdamArrays<float>& arrays,
                const UpdateRange& range) {
  HWY_DYNAMIC_DISPATCH(AdamFloat)(params, arrays, range);
}

void UpdateAdam(const AdamParams<double>& params, const AdamArrays<double>& arrays,
                const UpdateRange& range) {
  HWY_DYNAMIC_DISPATCH(AdamDouble)(params, arrays, range);
}

void UpdateSgd(const SgdParams<float>& params, const SgdArrays<float>& arrays,
               const UpdateRange& range) {
  HWY_DYNAMIC_DISPATCH(SgdFloat)(params, arrays, range);
}

void UpdateSgd(const SgdParams<double>& params, const SgdArrays<double>& arrays,
               const UpdateRange& range) {
  HWY_DYNAMIC_DISPATCH(SgdDouble)(params, arrays, range);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
