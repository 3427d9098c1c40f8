// Scans along rays: a vector of samples at a time, in double, rounded once.

#include "kernels/packed_scan/packed_scan_simd.h"

#include <vector>

#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed_scan/packed_scan_simd.cc"
#include <hwy/foreach_target.h>
// Highway wants this order.
#include <hwy/highway.h>

#include "kernels/simd/scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

// Eight floats multiply within double's range in any order: TensorFlow's threads take denormal ones
// for 0.
struct Sum {
  static constexpr double kStart = 0.0;
  static double Join(double a, double b) { return a + b; }
  static HWY_INLINE VD Join(VD a, VD b) { return hn::Add(a, b); }
  static HWY_INLINE VD Running(DD d, VD v) { return RunningSum(d, v); }
};

struct Product {
  static constexpr double kStart = 1.0;
  static double Join(double a, double b) { return a * b; }
  static HWY_INLINE VD Join(VD a, VD b) { return hn::Mul(a, b); }
  static HWY_INLINE VD Running(DD d, VD v) { return RunningProduct(d, v); }
};

// Sample i of the scan's order, in memory.
template <bool kReverse>
HWY_INLINE int64_t At(int64_t i, int64_t n) {
  return kReverse ? n - 1 - i : i;
}

// Where the vector of samples [i, i + lanes) of the scan's order begins in memory.
template <bool kReverse>
HWY_INLINE int64_t VectorAt(int64_t i, int64_t lanes, int64_t n) {
  return kReverse ? n - i - lanes : i;
}

template <class Reduction, bool kReverse>
HWY_INLINE void ScanOne(const float* in, int64_t n, bool exclusive, float* out) {
  const DD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VD start = hn::Set(d, Reduction::kStart);
  VD value = start;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const int64_t at = VectorAt<kReverse>(i, lanes, n);
    const VD running = Reduction::Running(d, LoadDoubles<kReverse>(d, in + at));
    const VD until = exclusive ? ShiftUp<1>(d, running, start) : running;
    StoreFloats<kReverse>(d, Reduction::Join(value, until), out + at);
    value = Reduction::Join(value, LastLane(d, running));
  }
  double before = hn::GetLane(value);
  for (; i < n; ++i) {
    const int64_t at = At<kReverse>(i, n);
    const double next = Reduction::Join(before, double{in[at]});
    out[at] = static_cast<float>(exclusive ? before : next);
    before = next;
  }
}

// `before` is for n doubles.
template <bool kReverse>
HWY_INLINE void ProdGradOne(const float* g, const float* x, int64_t n, bool exclusive,
                            double* HWY_RESTRICT before, float* out) {
  const DD d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VD one = hn::Set(d, 1.0);
  VD value = one;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const int64_t at = VectorAt<kReverse>(i, lanes, n);
    const VD running = RunningProduct(d, LoadDoubles<kReverse>(d, x + at));
    hn::StoreU(hn::Mul(value, ShiftUp<1>(d, running, one)), d, before + i);
    value = hn::Mul(value, LastLane(d, running));
  }
  const int64_t whole = i;
  double product = hn::GetLane(value);
  for (; i < n; ++i) {
    before[i] = product;
    product *= double{x[At<kReverse>(i, n)]};
  }

  // From the end: tail_i = x_i tail_{i+1} + (g_i, or x_i g_i: inclusive), R_i = tail_{i+1} (+ g_i).
  VD behind = hn::Zero(d);
  const auto add = [&](int64_t begin) HWY_ATTR {
    double tail = hn::GetLane(behind);
    while (i > begin) {
      --i;
      const int64_t at = At<kReverse>(i, n);
      const double g_i = g[at], x_i = x[at];
      if (!exclusive) tail += g_i;
      out[at] = static_cast<float>(before[i] * tail);
      tail *= x_i;
      if (exclusive) tail += g_i;
    }
    behind = hn::Set(d, tail);
  };
  add(whole);
  while (i > 0) {
    const int64_t at = VectorAt<kReverse>(i - lanes, lanes, n);
    const VD factors = LoadDoubles<!kReverse>(d, x + at);
    // Infinity times the 0 that comes before the first would be NaN.
    if (!hn::AllTrue(d, hn::IsFinite(factors))) {
      add(i - lanes);
      continue;
    }
    i -= lanes;
    const VD d_output = LoadDoubles<!kReverse>(d, g + at);
    VD a = factors, b = exclusive ? d_output : hn::Mul(factors, d_output);
    RunningRecurrence(d, &a, &b);
    VD rest = ShiftUp<1>(d, hn::MulAdd(a, behind, b), behind);
    if (!exclusive) rest = hn::Add(rest, d_output);
    const VD first = hn::Reverse(d, hn::LoadU(d, before + i));
    StoreFloats<!kReverse>(d, hn::Mul(first, rest), out + at);
    behind = hn::MulAdd(LastLane(d, a), behind, LastLane(d, b));
  }
}

void ScanAll(const ScanKind& kind, const PackedRays& rays, int64_t begin, int64_t end,
             const FloatArray& in, const MutableFloatArray& out) {
  std::vector<float> narrow;
  for (int64_t r = begin; r < end; ++r) {
    const RayRange ray = rays[r];
    if (ray.count == 0) continue;
    if (in.type != FloatType::kFloat) narrow.resize(ray.count);
    const float* const from = in.Read(ray.start, ray.count, narrow.data());
    float* const to = out.Piece(ray.start, narrow.data());
    const bool exclusive = kind.exclusive;
    if (kind.sum) {
      kind.reverse ? ScanOne<Sum, true>(from, ray.count, exclusive, to)
                   : ScanOne<Sum, false>(from, ray.count, exclusive, to);
    } else {
      kind.reverse ? ScanOne<Product, true>(from, ray.count, exclusive, to)
                   : ScanOne<Product, false>(from, ray.count, exclusive, to);
    }
    out.Store(ray.start, ray.count, to);
  }
}

void ProdGradAll(const ScanKind& kind, const PackedRays& rays, int64_t begin, int64_t end,
                 const FloatArray& g, const FloatArray& x, const MutableFloatArray& out) {
  std::vector<double> before;
  std::vector<float> narrow_g, narrow_x;
  for (int64_t r = begin; r < end; ++r) {
    const RayRange ray = rays[r];
    if (ray.count == 0) continue;
    if (static_cast<int64_t>(before.size()) < ray.count) before.resize(ray.count);
    if (g.type != FloatType::kFloat) {
      narrow_g.resize(ray.count);
      narrow_x.resize(ray.count);
    }
    const float* const from_g = g.Read(ray.start, ray.count, narrow_g.data());
    const float* const from_x = x.Read(ray.start, ray.count, narrow_x.data());
    float* const to = out.Piece(ray.start, narrow_g.data());
    kind.reverse ? ProdGradOne<true>(from_g, from_x, ray.count, kind.exclusive, before.data(), to)
                 : ProdGradOne<false>(from_g, from_x, ray.count, kind.exclusive, before.data(), to);
    out.Store(ray.start, ray.count, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {

HWY_EXPORT(ScanAll);
HWY_EXPORT(ProdGradAll);

void ScanRays(const ScanKind& kind, const PackedRays& rays, int64_t begin, int64_t end,
              const FloatArray& in, const MutableFloatArray& out) {
  HWY_DYNAMIC_DISPATCH(ScanAll)(kind, rays, begin, end, in, out);
}

void ProdGradRays(const ScanKind& kind, const PackedRays& rays, int64_t begin, int64_t end,
                  const FloatArray& g, const FloatArray& x, const MutableFloatArray& out) {
  HWY_DYNAMIC_DISPATCH(ProdGradAll)(kind, rays, begin, end, g, x, out);
}

}  // namespace metal_ops
#endif  // HWY_ONCE
