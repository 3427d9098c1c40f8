// DistortionLoss and ScaleRays on the CPU, a vector of samples at a time.
//
// Equation 15 of mip-NeRF 360 (Barron et al. 2022). With interval middles m_i in order, lengths d_i
// and weights w_i of one ray:
//   loss = sum_ij w_i w_j |m_i - m_j| + 1/3 sum_i w_i^2 d_i = 2 sum_i w_i A_i + 1/3 sum_i w_i^2 d_i
//   A_i = sum over j < i of w_j (m_i - m_j) = A_{i-1} + W_{i-1} (m_i - m_{i-1})
//   with W_i = w_0 + ... + w_i, and B_i the same as A_i from the other end
//   d loss / d w_i = 2 (A_i + B_i) + 2/3 w_i d_i
//   d loss / d m_i = 2 w_i (sum of w before i - sum behind),  d loss / d d_i = 1/3 w_i^2
// All terms of A and B have one sign, so nothing cancels, wherever the ray begins. A ray is done by
// one thread, in double, so results do not depend on the number of threads.

#include <atomic>
#include <string>

#include "kernels/rays/call_rays.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/distortion_loss/distortion_loss_simd.cc"
#include "kernels/simd/all_targets-inl.h"
#include "kernels/simd/scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

// The arrays of one ray. Slopes that are not requested are null; `starts_slope` requires `slope`.
struct DistortionRay {
  const float *weights, *t_starts, *t_ends;
  float *slope, *starts_slope, *ends_slope;
  int64_t count;
};

// The known numbers of the samples on one side.
struct Side {
  double sum;     // of their weights
  double reach;   // sum of weight times distance
  double middle;  // of the nearest
};

// Weights, middles and lengths of one vector of samples, kReverse: the last first.
template <class D>
struct Vectors {
  hn::Vec<D> weight, middle, length;
};

template <bool kReverse, class D>
HWY_INLINE Vectors<D> LoadSamples(D d, const DistortionRay& ray, int64_t i) {
  const hn::Rebind<float, D> df;
  const auto start = hn::LoadU(df, ray.t_starts + i), end = hn::LoadU(df, ray.t_ends + i);
  auto length = hn::Sub(end, start);  // rounded once, in float
  if constexpr (kReverse && ScanLanes<D>() > 1) length = hn::Reverse(df, length);
  const auto both =
      hn::Add(LoadDoubles<kReverse>(d, ray.t_starts + i), LoadDoubles<kReverse>(d, ray.t_ends + i));
  return {LoadDoubles<kReverse>(d, ray.weights + i), hn::Mul(hn::Set(d, 0.5), both),
          hn::PromoteTo(d, length)};
}

template <class D>
struct SideVectors {
  hn::Vec<D> sum, reach, middle;
};

// Sum and reach of the samples before each of a vector's samples, in the order of the scan; `gap`
// is the distance to the previous sample. `side` goes on behind them.
template <class D>
HWY_INLINE SideVectors<D> Pass(D d, const Vectors<D>& samples, hn::Vec<D> gap,
                               SideVectors<D>* side) {
  const auto sums = RunningSum(d, samples.weight);
  const auto sum = hn::Add(side->sum, ShiftUp<1>(d, sums, hn::Zero(d)));
  const auto reaches = RunningSum(d, hn::Mul(sum, gap));
  const auto reach = hn::Add(side->reach, reaches);
  side->sum = hn::Add(side->sum, LastLane(d, sums));
  side->reach = hn::Add(side->reach, LastLane(d, reaches));
  side->middle = LastLane(d, samples.middle);
  return {sum, reach, samples.middle};
}

template <class D>
HWY_INLINE SideVectors<D> Spread(D d, const Side& side) {
  return {hn::Set(d, side.sum), hn::Set(d, side.reach), hn::Set(d, side.middle)};
}

template <class D>
HWY_INLINE Side Gather(D, const SideVectors<D>& side) {
  return {hn::GetLane(side.sum), hn::GetLane(side.reach), hn::GetLane(side.middle)};
}

// Whole vectors of samples from `i` on. Returns where it ended, or -1 if samples are out of order.
template <class D>
HWY_INLINE int64_t Forwards(D d, const DistortionRay& ray, int64_t i, Side* state, double* total) {
  const int64_t lanes = ScanLanes<D>();
  const auto third = hn::Set(d, 1.0 / 3.0), zero = hn::Zero(d);
  SideVectors<D> side = Spread(d, *state);
  auto sum = zero, least = zero;
  for (; i + lanes <= ray.count; i += lanes) {
    const Vectors<D> samples = LoadSamples<false>(d, ray, i);
    const auto gap = hn::Sub(samples.middle, ShiftUp<1>(d, samples.middle, side.middle));
    // A gap that is NaN makes a loss that is NaN.
    least = hn::IfThenElse(hn::Lt(gap, least), gap, least);
    const SideVectors<D> before = Pass(d, samples, gap, &side);
    const auto inner = hn::Mul(hn::Mul(samples.weight, samples.length), third);
    const auto outer = hn::Add(before.reach, before.reach);
    sum = hn::MulAdd(samples.weight, hn::Add(outer, inner), sum);
    if (ray.slope != nullptr) StoreFloats<false>(d, before.reach, ray.slope + i);
    if (ray.starts_slope != nullptr) StoreFloats<false>(d, before.sum, ray.starts_slope + i);
  }
  *state = Gather(d, side);
  *total += hn::GetLane(hn::SumOfLanes(d, sum));
  return hn::AllTrue(d, hn::Ge(least, zero)) ? i : -1;
}

// From the end: whole vectors of the samples before `end`, down to `begin`. Returns where it ended.
template <class D>
HWY_INLINE int64_t Backwards(D d, const DistortionRay& ray, int64_t end, int64_t begin,
                             Side* state) {
  const int64_t lanes = ScanLanes<D>();
  const auto third = hn::Set(d, 1.0 / 3.0);
  SideVectors<D> side = Spread(d, *state);
  for (; end - lanes >= begin; end -= lanes) {
    const int64_t i = end - lanes;
    const Vectors<D> samples = LoadSamples<true>(d, ray, i);
    const auto gap = hn::Sub(ShiftUp<1>(d, samples.middle, side.middle), samples.middle);
    const SideVectors<D> behind = Pass(d, samples, gap, &side);
    const auto inner = hn::Mul(hn::Mul(samples.weight, samples.length), third);
    const auto reach = hn::Add(LoadDoubles<true>(d, ray.slope + i), behind.reach);
    const auto slope = hn::Add(reach, inner);
    StoreFloats<true>(d, hn::Add(slope, slope), ray.slope + i);
    if (ray.starts_slope == nullptr) continue;
    const auto sum = hn::Sub(LoadDoubles<true>(d, ray.starts_slope + i), behind.sum);
    const auto along = hn::Mul(samples.weight, sum);
    const auto wider = hn::Mul(hn::Mul(samples.weight, samples.weight), third);
    StoreFloats<true>(d, hn::Sub(along, wider), ray.starts_slope + i);
    StoreFloats<true>(d, hn::Add(along, wider), ray.ends_slope + i);
  }
  *state = Gather(d, side);
  return end;
}

double Middle(const DistortionRay& ray, int64_t i) {
  return 0.5 * (double{ray.t_starts[i]} + ray.t_ends[i]);
}

// Loss and slopes of one ray. False if its middles are not in order.
bool DistortRay(const DistortionRay& ray, float* loss) {
  *loss = 0.0f;
  if (ray.count == 0) return true;
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  double total = 0.0;
  Side side = {0.0, 0.0, Middle(ray, 0)};
  const int64_t whole = Forwards(d, ray, 0, &side, &total);
  if (whole < 0 || Forwards(one, ray, whole, &side, &total) < 0) return false;
  *loss = static_cast<float>(total);
  if (ray.slope == nullptr) return true;
  side = {0.0, 0.0, Middle(ray, ray.count - 1)};
  Backwards(one, ray, ray.count, whole, &side);
  Backwards(d, ray, whole, 0, &side);
  return true;
}

void DistortionLoss(CpuCall& call) {
  PackedRays rays;
  if (!InitRays(call, 3, 0, &rays)) return;
  for (const int output : {1, 2, 3}) ClearUncovered(call, rays, output);
  const bool t_gradients = call.Bool("t_gradients");
  // The derivative may be unused: TensorFlow knows while it runs a graph.
  const bool with_slope = t_gradients || call.IsWanted(1);
  std::atomic<int64_t> bad_ray{-1};
  call.ParallelFor(rays.n_rays(), rays.Cycles(8), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const RayRange range = rays[r];
      const DistortionRay ray = {call.in<float>(0) + range.start,
                                 call.in<float>(1) + range.start,
                                 call.in<float>(2) + range.start,
                                 with_slope ? call.out<float>(1) + range.start : nullptr,
                                 t_gradients ? call.out<float>(2) + range.start : nullptr,
                                 t_gradients ? call.out<float>(3) + range.start : nullptr,
                                 range.count};
      if (!DistortRay(ray, call.out<float>(0) + r)) bad_ray = r;
    }
  });
  call.shapes.Require(bad_ray < 0,
                      "t_starts and t_ends must ascend along each ray, got a sample before its "
                      "forerunner on ray " +
                          std::to_string(bad_ray.load()) + ". Sort the samples of a ray.");
}

void ScaleRays(CpuCall& call) {
  PackedRays rays;
  if (!InitRays(call, 2, 1, &rays)) return;
  ClearUncovered(call, rays, 0);
  call.ParallelFor(rays.n_rays(), rays.Cycles(1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const RayRange ray = rays[r];
      const float g = call.in<float>(0)[r];
      const float* const from = call.in<float>(1) + ray.start;
      float* const to = call.out<float>(0) + ray.start;
      for (int64_t i = 0; i < ray.count; ++i) to[i] = g * from[i];
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("DistortionLoss", DistortionLoss);
SIMD_KERNEL("ScaleRays", ScaleRays);
}  // namespace metal_ops
#endif  // HWY_ONCE
