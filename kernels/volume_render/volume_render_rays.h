// Shared by volume rendering's CPU kernels, forwards and backwards: their inputs, and the rays one
// after the other.

#ifndef METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_RAYS_H_
#define METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_RAYS_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/rays/call_rays.h"
#include "kernels/volume_render/volume_render_call.h"

namespace metal_ops {

// The samples of a ray are worked on in pieces of this many, which stay in the L1 cache.
constexpr int64_t kRayPiece = 256;

// Shared by all rays.
struct RenderInputs {
  explicit RenderInputs(const CpuCall& call) : max_thickness(MaxThickness(call)) {
    const int first = call.Index("sigmas"), times = call.Index("t_starts");
    sigmas = call.floats(first);
    if (times > first + 1) rgbs = call.floats(first + 1);
    n_channels = std::max<int64_t>(call.Size("channels"), 0);
    t_starts = call.in<float>(times);
    t_ends = call.in<float>(times + 1);
  }

  FloatArray sigmas;      // [samples]
  FloatArray rgbs;        // [samples, n_channels], or none
  const float* t_starts;  // [samples]
  const float* t_ends;    // [samples]
  int64_t n_channels = 0;
  float max_thickness;  // a sample behind more than this optical thickness weighs nothing
};

// Buffers of one thread.
struct RayScratch {
  std::vector<float> narrow;  // a piece of half-precision input or output
  std::vector<float> ray;     // a whole ray's intermediate values
};

// Null for an empty input, which stands for "there is none".
inline const float* FloatsOrNull(const CpuCall& call, int input) {
  return call.inputs[input].n_elements == 0 ? nullptr : call.in<float>(input);
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

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_RAYS_H_
