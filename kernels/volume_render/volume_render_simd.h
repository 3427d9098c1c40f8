// The inner loops of volume rendering on the CPU, one call a ray, compiled for several instruction
// sets.

#ifndef METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_SIMD_H_
#define METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_SIMD_H_

#include <cstdint>
#include <vector>

#include "kernels/simd/float_types.h"

namespace metal_ops {

// The samples of a ray are worked on in pieces of this many, which stay in the L1 cache.
constexpr int64_t kRayPiece = 256;

// What all rays share.
struct RenderInputs {
  FloatArray sigmas;      // [samples]
  FloatArray rgbs;        // [samples, n_channels], or none
  const float* t_starts;  // [samples]
  const float* t_ends;    // [samples]
  int64_t n_channels = 0;
  float max_thickness;  // a sample behind more than this optical thickness weighs nothing
};

// One ray's results; null where none is wanted.
struct RenderedRay {
  const float* background;  // [n_channels], or null
  float* rgb;               // [n_channels]
  float* opacity;
  float* depth;  // sum of w_i (t_start_i + t_end_i) / 2
  float*
      depth_median;  // middle of the first sample with opacity >= 1/2 behind it, else of the last
};

// Buffers of one thread.
struct RayScratch {
  std::vector<float> narrow;  // a piece of half-precision input or output
  std::vector<float> ray;     // a whole ray's intermediate values
};

// Samples [start, start + count) -> weights (and transmittance, if not null) of these samples, and
// the ray's sums, if `ray` is not null. Each sample array begins at sample 0 of all rays.
void RenderRay(const RenderInputs& in, int64_t start, int64_t count, float* weights,
               float* transmittance, const RenderedRay* ray, RayScratch* scratch);

// Gradients of a loss with respect to one ray's results; null where there is none.
struct RayGradients {
  const float* rgb;  // [n_channels]
  float opacity;
  float depth;
  float depth_median;
  const float* weights;        // [samples] of all rays
  const float* transmittance;  // [samples] of all rays
};

// Gradients of the inputs, each [samples, ...] of all rays; null where none is wanted.
struct SampleGradients {
  MutableFloatArray sigmas;
  MutableFloatArray rgbs;
  float* t_starts;
  float* t_ends;
};

// Returns T_end, which is the derivative of rgb with respect to the background.
float DifferentiateRay(const RenderInputs& in, int64_t start, int64_t count,
                       const float* background, const RayGradients& from, const SampleGradients& to,
                       RayScratch* scratch);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_VOLUME_RENDER_VOLUME_RENDER_SIMD_H_
