// The inner loops of the distortion loss on the CPU, one call a ray, compiled for several
// instruction sets.

#ifndef METAL_OPS_KERNELS_DISTORTION_LOSS_DISTORTION_LOSS_SIMD_H_
#define METAL_OPS_KERNELS_DISTORTION_LOSS_DISTORTION_LOSS_SIMD_H_

#include <cstdint>

namespace metal_ops {

// The arrays of one ray. Slopes that nobody wants are null; `starts_slope` wants `slope`.
struct DistortionRay {
  const float *weights, *t_starts, *t_ends;
  float *slope, *starts_slope, *ends_slope;
  int64_t count;
};

// Loss and slopes of one ray. False if its middles are not in order.
bool DistortRay(const DistortionRay& ray, float* loss);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_DISTORTION_LOSS_DISTORTION_LOSS_SIMD_H_
