// ScaleSlope: one thread per element. ScaleSlopeSum: one thread per sum of a few terms, pass after
// pass.

#include <metal_stdlib>

#include "kernels/losses/row_means.metal.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/scale_slope/scale_slope_params.h"

using namespace metal;

template <typename T>
kernel void scale_slope(device const T* d_loss [[buffer(0)]], device const T* slope [[buffer(1)]],
                        device T* gradient [[buffer(2)]],
                        constant ScaleSlopeParams& params [[buffer(3)]],
                        uint2 position [[thread_position_in_grid]],
                        uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_elements) return;
  const ulong row = params.per_d_loss == 1 ? i : i / params.per_d_loss;
  gradient[i] = T(float(slope[i]) * float(d_loss[row]));
}

template <typename T>
kernel void scale_slope_sum(device const T* d_loss [[buffer(0)]],
                            device const T* slope [[buffer(1)]], device float* sums [[buffer(2)]],
                            constant ScaleSlopeSumParams& params [[buffer(3)]],
                            uint2 position [[thread_position_in_grid]],
                            uint2 threads [[threads_per_grid]]) {
  const ulong first = flat_index(position, threads);
  if (first >= params.n_sums) return;
  CarefulSum sum = careful_sum_zero();
  for (ulong i = first; i < params.n_elements; i += params.n_sums) {
    const ulong row = params.per_d_loss == 1 ? i : i / params.per_d_loss;
    careful_add(sum, float(slope[i]) * float(d_loss[row]));
  }
  sums[first] = careful_result(sum);
}

kernel void scale_slope_fold(device const float* terms [[buffer(0)]],
                             device float* sums [[buffer(1)]],
                             constant ScaleSlopeSumParams& params [[buffer(2)]],
                             uint2 position [[thread_position_in_grid]],
                             uint2 threads [[threads_per_grid]]) {
  const ulong first = flat_index(position, threads);
  if (first >= params.n_sums) return;
  CarefulSum sum = careful_sum_zero();
  for (ulong i = first; i < params.n_elements; i += params.n_sums) careful_add(sum, terms[i]);
  sums[first] = careful_result(sum);
}

#define INSTANTIATE_TYPE(T)                             \
  INSTANTIATE_KERNEL("scale_slope_" #T, scale_slope, T) \
  INSTANTIATE_KERNEL("scale_slope_sum_" #T, scale_slope_sum, T)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
