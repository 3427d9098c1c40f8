// The robust loss of a stretch of elements on the CPU, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_SIMD_H_
#define METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_SIMD_H_

#include <cstdint>

namespace metal_ops {

// Elements that are worked on at a time, a multiple of every vector.
constexpr int64_t kLossPiece = 256;

// kLossPiece-sized buffers aligned to 64 bytes, of which n elements count.
struct RobustLossPiece {
  const float* x;
  const float* alpha;  // of each element
  const float* scale;
  float* loss;
  float* slope;        // d loss / d x
  float* slope_alpha;  // null where not wanted, with slope_scale
  float* slope_scale;
};

void RobustLoss(const RobustLossPiece& piece, int64_t n);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROBUST_LOSS_ROBUST_LOSS_SIMD_H_
