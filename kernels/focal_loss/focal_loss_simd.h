// The focal losses' inner loops on the CPU, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_SIMD_H_
#define METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_SIMD_H_

#include <cstdint>

#include "kernels/focal_loss/focal_loss_params.h"

namespace metal_ops {

// Elements that are worked on at a time, a multiple of every vector.
constexpr int64_t kFocalPiece = 256;

// Buffers of kFocalPiece floats aligned to 64 bytes, of which n count.
void SigmoidFocalLoss(const FocalLossParams& params, const float* x, const float* y, int64_t n,
                      float* loss, float* slope);

// What rows need behind their classes, a multiple of every vector.
constexpr int64_t kFocalPadding = 64;

// One row of n classes in buffers of n + kFocalPadding floats, all of which are used up. `y` are
// the targets before smoothing; where `own` is not -1 it is the only class with a target, there is
// no smoothing, and y is not read. Returns the loss.
float SoftmaxFocalLoss(const FocalLossParams& params, float* x, float* y, int64_t own, int64_t n,
                       float* slope);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FOCAL_LOSS_FOCAL_LOSS_SIMD_H_
