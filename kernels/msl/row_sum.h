// Sums over the lanes that have a row of a norm: one thread, or a SIMD group.

#ifndef METAL_OPS_KERNELS_MSL_ROW_SUM_H_
#define METAL_OPS_KERNELS_MSL_ROW_SUM_H_

#include <metal_stdlib>

// The order of a SIMD group's sum is the hardware's, and always the same.
template <int kLanes>
inline float row_sum(float x) {
  return metal::simd_sum(x);
}
template <>
inline float row_sum<1>(float x) {
  return x;
}

#endif  // METAL_OPS_KERNELS_MSL_ROW_SUM_H_
