// ResourceFusedAdam and ResourceFusedSgd on the CPU: one pass over memory, in vectors, shared out on
// threads.

#include <algorithm>

#include "kernels/fused_optimizer/fused_optimizer_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_optimizer/fused_optimizer_simd.cc"
#include "kernels/simd/all_targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

#include "kernels/fused_optimizer/fused_optimizer_formula.h"

// Elements that half-precision variables are worked on at a time, a multiple of every vector.
constexpr int64_t kPiece = 512;

// The elements of a vector that take their next value: all, or those of rows in use.
struct All {
  template <class V>
  HWY_INLINE V operator()(V next, V) const {
    return next;
  }
};

template <class V>
struct Where {
  typename V::Bool used;
  HWY_INLINE V operator()(V next, V now) const { return select(now, next, used); }
};

template <typename Real>
struct Adam {
  AdamParams<Real> p;
  Real *m, *v, *hat;  // the last may be null

  void Advance(int64_t n) {
    m += n;
    v += n;
    if (hat != nullptr) hat += n;
  }

  template <class V, class Choice>
  HWY_INLINE V Run(V x, V g, int64_t i, const Choice& choose) const {
    const bool amsgrad = hat != nullptr;
    const AdamState<V> now = {x, V::Load(m + i), V::Load(v + i), amsgrad ? V::Load(hat + i) : V(0)};
    const AdamState<V> next = adam_next(now, g, p, amsgrad);
    choose(next.m, now.m).Store(m + i);
    choose(next.v, now.v).Store(v + i);
    if (amsgrad) choose(next.hat, now.hat).Store(hat + i);
    return choose(next.x, x);
  }
};

template <typename Real>
struct Sgd {
  SgdParams<Real> p;
  Real* m;  // null: no momentum
  bool nesterov;

  void Advance(int64_t n) {
    if (m != nullptr) m += n;
  }

  template <class V, class Choice>
  HWY_INLINE V Run(V x, V g, int64_t i, const Choice& choose) const {
    const SgdState<V> now = {x, m != nullptr ? V::Load(m + i) : V(0)};
    const SgdState<V> next = sgd_next(now, g, p, m != nullptr, nesterov);
    if (m != nullptr) choose(next.m, now.m).Store(m + i);
    return choose(next.x, x);
  }
};

// Elements [0, n) of x and g, with the state beginning at the same element.
template <typename Real, class Rule>
HWY_INLINE void Update(const Rule& rule, Real* HWY_RESTRICT x, const Real* HWY_RESTRICT g,
                       int64_t n) {
  using V = Vector<hn::ScalableTag<Real>>;
  using One = Vector<hn::CappedTag<Real, 1>>;
  int64_t i = 0;
  for (; i + V::Lanes() <= n; i += V::Lanes()) {
    rule.Run(V::Load(x + i), V::Load(g + i), i, All()).Store(x + i);
  }
  for (; i < n; ++i) rule.Run(One::Load(x + i), One::Load(g + i), i, All()).Store(x + i);
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
  constexpr hn::ScalableTag<Real> d;
  int64_t i = 0;
  if constexpr (kRow <= hn::MaxLanes(d)) {
    using V = Vector<hn::ScalableTag<Real>>;
    for (; i + V::Lanes() <= n; i += V::Lanes()) {
      const V g_i = V::Load(g + i);
      const Where<V> where = {{AnyOfRow<kRow>(d, (g_i != 0).mask)}};
      rule.Run(V::Load(x + i), g_i, i, where).Store(x + i);
    }
  }
  return i;
}

template <typename Real>
HWY_INLINE bool AllZero(const Real* g, int64_t n) {
  using V = Vector<hn::ScalableTag<Real>>;
  int64_t i = 0;
  for (; i + V::Lanes() <= n; i += V::Lanes()) {
    if (any_of(V::Load(g + i) != 0)) return false;
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

// Elements [begin, end) of x and g, which are of `type` (kFloat if Real is double: then they are
// double), in whole rows.
template <typename Real, class Rule>
void UpdateRange(Rule rule, FloatType type, void* x, const void* g, int64_t begin, int64_t end,
                 int64_t row, bool skip) {
  rule.Advance(begin);
  const int64_t n = end - begin;
  if (type == FloatType::kFloat) {
    Real* const to = static_cast<Real*>(x) + begin;
    const Real* const from = static_cast<const Real*>(g) + begin;
    if (skip) {
      UpdateRows(rule, to, from, n, row);
    } else {
      Update(rule, to, from, n);
    }
    return;
  }
  if constexpr (sizeof(Real) == 4) {
    // A piece ends with a row where rows matter; a longer row is looked at as a whole.
    float x_piece[kPiece], g_piece[kPiece];
    char* const x_bytes = static_cast<char*>(x);
    const char* const g_bytes = static_cast<const char*>(g);
    const int64_t piece = !skip || row > kPiece ? kPiece : kPiece / row * row;
    for (int64_t done = 0; done < n;) {
      int64_t limit = n;
      if (skip && row > kPiece) {
        limit = (done / row + 1) * row;
        bool zero = true;
        for (int64_t at = done; zero && at < limit; at += kPiece) {
          const int64_t size = std::min(kPiece, limit - at);
          WidenFloats(type, g_bytes + 2 * (begin + at), size, g_piece);
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
        WidenFloats(type, g_bytes + 2 * (begin + done), size, g_piece);
        WidenFloats(type, x_bytes + 2 * (begin + done), size, x_piece);
        Rule here = rule;
        here.Advance(done);
        if (skip && row <= kPiece) {
          UpdateRows(here, x_piece, g_piece, size, row);
        } else {
          Update(here, x_piece, g_piece, size);
        }
        NarrowFloats(type, x_piece, size, x_bytes + 2 * (begin + done));
      }
    }
  }
}

template <typename Real, class Rule>
void ForRanges(CpuCall& call, const Rule& rule) {
  constexpr int64_t kCycles = 4;
  const int gradient = call.Index("gradient");
  const int64_t n = call.inputs[gradient].n_elements;
  if (n == 0) return;
  const ArgShape& shape = call.in_shapes[gradient];
  const bool skip = call.Bool("skip_zero_rows");
  const int64_t row = skip ? n / (shape.rank() == 0 ? 1 : shape.dims[0]) : 1;
  call.ParallelFor(n / row, kCycles * row, [&](int64_t begin, int64_t end) {
    UpdateRange<Real>(rule, ToFloatType(call.Type("T")), call.variable<void>(0),
                      call.inputs[gradient].data, begin * row, end * row, row, skip);
  });
}

template <typename Real>
void RunAdam(CpuCall& call) {
  const bool amsgrad = call.Int("n_hats") == 1;
  ForRanges<Real>(
      call, Adam<Real>{ToAdamParams<Real>(call), call.variable<Real>(1), call.variable<Real>(2),
                       amsgrad ? call.variable<Real>(3) : nullptr});
}

void FusedAdam(CpuCall& call) {
  call.Type("T") == DType::kDouble ? RunAdam<double>(call) : RunAdam<float>(call);
}

template <typename Real>
void RunSgd(CpuCall& call) {
  const bool with_momentum = call.Int("n_momenta") == 1;
  ForRanges<Real>(
      call, Sgd<Real>{ToSgdParams<Real>(call), with_momentum ? call.variable<Real>(1) : nullptr,
                      with_momentum && call.Bool("nesterov")});
}

void FusedSgd(CpuCall& call) {
  call.Type("T") == DType::kDouble ? RunSgd<double>(call) : RunSgd<float>(call);
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("ResourceFusedAdam", FusedAdam);
SIMD_KERNEL("ResourceFusedSgd", FusedSgd);
}  // namespace metal_ops
#endif  // HWY_ONCE
