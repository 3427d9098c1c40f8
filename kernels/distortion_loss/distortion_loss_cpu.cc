// DistortionLoss and ScaleRays on the CPU.
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

#include "kernels/distortion_loss/distortion_loss_simd.h"
#include "kernels/rays/call_rays.h"

namespace metal_ops {
namespace {

// Cycles that a sample takes, roughly.
constexpr int64_t kCycles = 8;

void DistortionLoss(CpuCall& call) {
  PackedRays rays;
  if (!InitRays(call, 3, 0, &rays)) return;
  for (const int output : {1, 2, 3}) ClearUncovered(call, rays, output);
  const bool t_gradients = call.Bool("t_gradients");
  // Nobody may want the derivative: TensorFlow knows while it runs a graph.
  const bool with_slope = t_gradients || call.IsWanted(1);
  std::atomic<int64_t> bad_ray{-1};
  call.ParallelFor(rays.n_rays(), rays.Cycles(kCycles), [&](int64_t begin, int64_t end) {
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
CPU_KERNEL("DistortionLoss", DistortionLoss);

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
CPU_KERNEL("ScaleRays", ScaleRays);

}  // namespace
}  // namespace metal_ops
