// Running sums, products and linear recurrences within a vector of doubles, in log2(lanes) steps:
// scans along rays do not wait for one addition after the other. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_SIMD_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_SIMD_SCAN_INL_H_
#undef METAL_OPS_KERNELS_SIMD_SCAN_INL_H_
#else
#define METAL_OPS_KERNELS_SIMD_SCAN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A `d` has one lane, for the remainder behind the last whole vector, or several.
template <class D>
constexpr int64_t ScanLanes() {
  static_assert(hn::MaxLanes(D()) <= 8, "three steps scan no more than eight lanes");
  return static_cast<int64_t>(hn::MaxLanes(D()));
}

// Lane i is lane i - kBy of v; the first kBy are those of `fill`.
template <int kBy, class D, class V = hn::Vec<D>>
HWY_INLINE V ShiftUp(D d, V v, V fill) {
  if constexpr (kBy >= ScanLanes<D>()) {
    return fill;
  } else {
    HWY_ALIGN static constexpr int64_t kFrom[8] = {0,
                                                   kBy > 1 ? 0 : 1 - kBy,
                                                   kBy > 2 ? 0 : 2 - kBy,
                                                   kBy > 3 ? 0 : 3 - kBy,
                                                   4 - kBy,
                                                   5 - kBy,
                                                   6 - kBy,
                                                   7 - kBy};
    const V shifted = hn::TableLookupLanes(v, hn::SetTableIndices(d, kFrom));
    return hn::IfThenElse(hn::FirstN(d, kBy), fill, shifted);
  }
}

// The last lane in all lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LastLane(D d, V v) {
  if constexpr (ScanLanes<D>() == 1) {
    return v;
  } else {
    constexpr int64_t kLast = ScanLanes<D>() - 1;
    HWY_ALIGN static constexpr int64_t kFrom[8] = {kLast, kLast, kLast, kLast,
                                                   kLast, kLast, kLast, kLast};
    return hn::TableLookupLanes(v, hn::SetTableIndices(d, kFrom));
  }
}

// Lane i is v_0 + ... + v_i.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RunningSum(D d, V v) {
  const V zero = hn::Zero(d);
  if constexpr (ScanLanes<D>() > 1) v = hn::Add(v, ShiftUp<1>(d, v, zero));
  if constexpr (ScanLanes<D>() > 2) v = hn::Add(v, ShiftUp<2>(d, v, zero));
  if constexpr (ScanLanes<D>() > 4) v = hn::Add(v, ShiftUp<4>(d, v, zero));
  return v;
}

// Lane i is v_0 ... v_i.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RunningProduct(D d, V v) {
  const V one = hn::Set(d, 1.0);
  if constexpr (ScanLanes<D>() > 1) v = hn::Mul(v, ShiftUp<1>(d, v, one));
  if constexpr (ScanLanes<D>() > 2) v = hn::Mul(v, ShiftUp<2>(d, v, one));
  if constexpr (ScanLanes<D>() > 4) v = hn::Mul(v, ShiftUp<4>(d, v, one));
  return v;
}

// t_i = a_i t_{i-1} + b_i becomes t_i = a_i t + b_i, with the t before lane 0.
template <int kBy, class D, class V = hn::Vec<D>>
HWY_INLINE void JoinRecurrence(D d, V* a, V* b) {
  if constexpr (kBy < ScanLanes<D>()) {
    *b = hn::MulAdd(*a, ShiftUp<kBy>(d, *b, hn::Zero(d)), *b);
    *a = hn::Mul(*a, ShiftUp<kBy>(d, *a, hn::Set(d, 1.0)));
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void RunningRecurrence(D d, V* a, V* b) {
  JoinRecurrence<1>(d, a, b);
  JoinRecurrence<2>(d, a, b);
  JoinRecurrence<4>(d, a, b);
}

// Floats from memory as doubles, kReverse: the last first.
template <bool kReverse, class D>
HWY_INLINE hn::Vec<D> LoadDoubles(D d, const float* from) {
  const hn::Rebind<float, D> df;
  auto v = hn::LoadU(df, from);
  if constexpr (kReverse && ScanLanes<D>() > 1) v = hn::Reverse(df, v);
  return hn::PromoteTo(d, v);
}

template <bool kReverse, class D>
HWY_INLINE void StoreFloats(D d, hn::Vec<D> v, float* to) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  // Highway's DemoteTo makes the largest float of infinity here.
  constexpr int64_t kLanes = ScanLanes<D>();
  HWY_ALIGN double lanes[kLanes];
  hn::Store(v, d, lanes);
  for (int64_t i = 0; i < kLanes; ++i) {
    to[i] = static_cast<float>(lanes[kReverse ? kLanes - 1 - i : i]);
  }
#else
  const hn::Rebind<float, D> df;
  auto narrow = hn::DemoteTo(df, v);
  if constexpr (kReverse && ScanLanes<D>() > 1) narrow = hn::Reverse(df, narrow);
  hn::StoreU(narrow, df, to);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_SIMD_SCAN_INL_H_
