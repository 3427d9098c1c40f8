// PackedScan, PackedProdGrad and PackRayIndices on the CPU: a vector of samples at a time.
//
// A ray is done by one thread, so results do not depend on the number of threads. Sums and products
// run in double and are rounded once.

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/packed_scan/pack_ray_indices.h"
#include "kernels/rays/call_rays.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/packed_scan/packed_scan_simd.cc"
#include "kernels/simd/all_targets-inl.h"
#include "kernels/simd/scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

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
void ScanOne(const float* in, int64_t n, bool exclusive, float* out) {
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

// d loss / d x_i = P_i R_i with P_i = product of x_j before i, and R_i = sum over the outputs j
// that x_i is in, of g_j times all other factors behind i: R_i = g_i + x_{i+1} R_{i+1} (inclusive),
// R_i = g_{i+1} + x_{i+1} R_{i+1} (exclusive). The result may be the same array as g or x; `before`
// is for n doubles.
template <bool kReverse>
void ProdGradOne(const float* g, const float* x, int64_t n, bool exclusive,
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

// Buffers of one thread.
struct Buffers {
  std::vector<float> narrow[2];
  std::vector<double> before;
};

// Calls `work(ray, buffers)` for rays with samples; `cycles` is the cost of a sample, roughly.
void ForRays(CpuCall& call, int64_t cycles,
             const std::function<void(const RayRange&, Buffers&)>& work) {
  const int packed_info = static_cast<int>(call.inputs.size()) - 1;
  PackedRays rays;
  if (!InitRays(call, packed_info, packed_info - 1, &rays)) return;
  ClearUncovered(call, rays, 0);
  if (rays.n_samples() == 0) return;  // however many rays there are
  call.ParallelFor(rays.n_rays(), rays.Cycles(cycles), [&](int64_t begin, int64_t end) {
    Buffers buffers;
    for (int64_t r = begin; r < end; ++r) {
      const RayRange ray = rays[r];
      if (ray.count == 0) continue;
      if (call.inputs[0].type != DType::kFloat) {
        for (std::vector<float>& narrow : buffers.narrow) narrow.resize(ray.count);
      }
      work(ray, buffers);
    }
  });
}

void PackedScan(CpuCall& call) {
  const bool exclusive = call.Bool("exclusive"), reverse = call.Bool("reverse");
  const auto scan = call.Text("reduction") == "sum"
                        ? (reverse ? ScanOne<Sum, true> : ScanOne<Sum, false>)
                        : (reverse ? ScanOne<Product, true> : ScanOne<Product, false>);
  const FloatArray in = call.floats(0);
  const MutableFloatArray out = call.float_out(0);
  ForRays(call, 2, [&](const RayRange& ray, Buffers& buffers) {
    float* const narrow = buffers.narrow[0].data();
    float* const to = out.Piece(ray.start, narrow);
    scan(in.Read(ray.start, ray.count, narrow), ray.count, exclusive, to);
    out.Store(ray.start, ray.count, to);
  });
}

void PackedProdGrad(CpuCall& call) {
  const bool exclusive = call.Bool("exclusive");
  const auto differentiate = call.Bool("reverse") ? ProdGradOne<true> : ProdGradOne<false>;
  const FloatArray g = call.floats(0), x = call.floats(1);
  const MutableFloatArray out = call.float_out(0);
  ForRays(call, 5, [&](const RayRange& ray, Buffers& buffers) {
    float* const narrow = buffers.narrow[0].data();
    buffers.before.resize(std::max<size_t>(buffers.before.size(), ray.count));
    float* const to = out.Piece(ray.start, narrow);
    differentiate(g.Read(ray.start, ray.count, narrow),
                  x.Read(ray.start, ray.count, buffers.narrow[1].data()), ray.count, exclusive,
                  buffers.before.data(), to);
    out.Store(ray.start, ray.count, to);
  });
}

void PackRayIndices(CpuCall& call) {
  const int64_t n_rays = call.out_shapes[0].dims[0];
  if (call.inputs[0].type == DType::kInt64) {
    metal_ops::PackRayIndices(call, call.in<int64_t>(0), n_rays, call.out<int64_t>(0));
  } else {
    metal_ops::PackRayIndices(call, call.in<int32_t>(0), n_rays, call.out<int32_t>(0));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace metal_ops {
SIMD_KERNEL("PackedScan", PackedScan);
SIMD_KERNEL("PackedProdGrad", PackedProdGrad);
SIMD_KERNEL("PackRayIndices", PackRayIndices);
}  // namespace metal_ops
#endif  // HWY_ONCE
