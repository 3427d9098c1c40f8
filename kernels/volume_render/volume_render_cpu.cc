// VolumeRender, RenderWeights and their gradients on the CPU: rays are shared out on threads.
//
// A ray is done by one thread, so results do not depend on the number of threads.

#include <initializer_list>
#include <vector>

#include "kernels/rays/call_rays.h"
#include "kernels/volume_render/volume_render_call.h"
#include "kernels/volume_render/volume_render_simd.h"

namespace metal_ops {
namespace {

// Cycles that a sample takes, roughly: two exponentials in vectors, two serial additions.
constexpr int64_t kForwardCycles = 15;
constexpr int64_t kBackwardCycles = 30;

// Null for an empty input, which stands for "there is none".
const float* Floats(const CpuCall& call, int input) {
  return call.inputs[input].n_elements == 0 ? nullptr : call.in<float>(input);
}

RenderInputs Inputs(const CpuCall& call, bool coloured) {
  const int sigmas = call.Index("sigmas"), t_starts = sigmas + (coloured ? 2 : 1);
  RenderInputs in = {};
  in.sigmas = call.floats(sigmas);
  if (coloured) {
    in.rgbs = call.floats(sigmas + 1);
    in.n_channels = call.Size("channels");
  }
  in.t_starts = call.in<float>(t_starts);
  in.t_ends = call.in<float>(t_starts + 1);
  in.max_thickness = MaxThickness(call);
  return in;
}

// Times are outputs `first_time` and the next one.
SampleGradients Gradients(const CpuCall& call, int first_time) {
  SampleGradients to = {};
  to.sigmas = call.float_out(0);
  if (!call.Bool("t_gradients")) return to;
  to.t_starts = call.out<float>(first_time);
  to.t_ends = call.out<float>(first_time + 1);
  return to;
}

// Calls `work(ray's number, its samples, scratch)` for every ray. Results of samples of no ray are
// zero.
template <typename Work>
void ForRays(CpuCall& call, int64_t cycles, std::initializer_list<int> outputs_of_samples,
             const Work& work) {
  PackedRays rays;
  if (!InitRays(call, call.Index("packed_info"), call.Index("sigmas"), &rays)) return;
  for (const int output : outputs_of_samples) ClearUncovered(call, rays, output);
  // However many rays there are, if they have no output of their own.
  const bool has_rays = call.Size("channels") >= 0;
  if (rays.n_samples() == 0 && !has_rays) return;
  call.ParallelFor(rays.n_rays(), rays.Cycles(cycles), [&](int64_t begin, int64_t end) {
    RayScratch scratch;
    for (int64_t r = begin; r < end; ++r) work(r, rays[r], &scratch);
  });
}

void VolumeRender(CpuCall& call) {
  const RenderInputs in = Inputs(call, /*coloured=*/true);
  const int64_t n_channels = in.n_channels;
  const float* const behind = Floats(call, 5);
  const int64_t behind_stride = call.in_shapes[5].rank() == 2 ? n_channels : 0;
  ForRays(call, kForwardCycles, {4}, [&](int64_t r, const RayRange& range, RayScratch* scratch) {
    const RenderedRay ray = {behind == nullptr ? nullptr : behind + r * behind_stride,
                             call.out<float>(0) + r * n_channels, call.out<float>(1) + r,
                             call.out<float>(2) + r, call.out<float>(3) + r};
    RenderRay(in, range.start, range.count, call.out<float>(4), nullptr, &ray, scratch);
  });
}
CPU_KERNEL("VolumeRender", VolumeRender);

void VolumeRenderGrad(CpuCall& call) {
  const RenderInputs in = Inputs(call, /*coloured=*/true);
  const int64_t n_channels = in.n_channels, n_rays = call.Size("rays");
  SampleGradients to = Gradients(call, 3);
  to.rgbs = call.float_out(1);
  const float* const from_rgb = Floats(call, 0);
  const float* const from_opacity = Floats(call, 1);
  const float* const from_depth = Floats(call, 2);
  const float* const from_median = Floats(call, 3);
  const float* const light = Floats(call, 10);
  const int64_t light_stride = call.in_shapes[10].rank() == 2 ? n_channels : 0;
  // Not empty: a null pointer stands for "no colours", and there may be no channels.
  const std::vector<float> no_rgb(n_channels + 1, 0.0f);
  std::vector<float> behind(n_rays);
  ForRays(call, kBackwardCycles, {0, 1, 3, 4},
          [&](int64_t r, const RayRange& range, RayScratch* scratch) {
            RayGradients from = {};
            from.rgb = from_rgb == nullptr ? no_rgb.data() : from_rgb + r * n_channels;
            from.opacity = from_opacity == nullptr ? 0.0f : from_opacity[r];
            from.depth = from_depth == nullptr ? 0.0f : from_depth[r];
            from.depth_median = from_median == nullptr ? 0.0f : from_median[r];
            from.weights = Floats(call, 4);
            behind[r] = DifferentiateRay(in, range.start, range.count,
                                         light == nullptr ? nullptr : light + r * light_stride,
                                         from, to, scratch);
          });

  // d loss / d background = T_end d loss / d rgb; one background for all rays: their sum, in order.
  if (light == nullptr || !call.shapes.ok()) return;
  float* const out = call.out<float>(2);
  std::vector<double> sum(light_stride == 0 ? n_channels : 0);
  for (int64_t r = 0; r < n_rays; ++r) {
    for (int64_t c = 0; c < n_channels; ++c) {
      const float g = from_rgb == nullptr ? 0.0f : from_rgb[r * n_channels + c];
      if (light_stride == 0) {
        sum[c] += static_cast<double>(behind[r]) * g;
      } else {
        out[r * n_channels + c] = behind[r] * g;
      }
    }
  }
  for (size_t c = 0; c < sum.size(); ++c) out[c] = static_cast<float>(sum[c]);
}
CPU_KERNEL("VolumeRenderGrad", VolumeRenderGrad);

void RenderWeights(CpuCall& call) {
  const RenderInputs in = Inputs(call, /*coloured=*/false);
  ForRays(call, kForwardCycles, {0, 1}, [&](int64_t, const RayRange& ray, RayScratch* scratch) {
    RenderRay(in, ray.start, ray.count, call.out<float>(0), call.out<float>(1), nullptr, scratch);
  });
}
CPU_KERNEL("RenderWeights", RenderWeights);

void RenderWeightsGrad(CpuCall& call) {
  const RenderInputs in = Inputs(call, /*coloured=*/false);
  const SampleGradients to = Gradients(call, 1);
  RayGradients from = {};
  from.weights = Floats(call, 0);
  from.transmittance = Floats(call, 1);
  ForRays(call, kBackwardCycles, {0, 1, 2}, [&](int64_t, const RayRange& ray, RayScratch* scratch) {
    DifferentiateRay(in, ray.start, ray.count, nullptr, from, to, scratch);
  });
}
CPU_KERNEL("RenderWeightsGrad", RenderWeightsGrad);

}  // namespace
}  // namespace metal_ops
