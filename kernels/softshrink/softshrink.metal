// Softshrink and SoftshrinkGrad. One thread an element; half and bfloat are computed in float.

#include <metal_stdlib>

#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/softshrink/softshrink_params.h"

using namespace metal;

template <typename T>
kernel void softshrink(device const T* features [[buffer(0)]], device T* activations [[buffer(1)]],
                       constant SoftshrinkParams& params [[buffer(2)]],
                       uint2 position [[thread_position_in_grid]],
                       uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i < params.n_elements) activations[i] = T(SoftshrinkValue(float(features[i]), params.lambda));
}

template <typename T>
kernel void softshrink_grad(device const T* gradients [[buffer(0)]],
                            device const T* features [[buffer(1)]],
                            device T* backprops [[buffer(2)]],
                            constant SoftshrinkParams& params [[buffer(3)]],
                            uint2 position [[thread_position_in_grid]],
                            uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_elements) return;
  backprops[i] = T(SoftshrinkGradient(float(gradients[i]), float(features[i]), params.lambda));
}

INSTANTIATE_KERNEL("softshrink_float", softshrink, float)
INSTANTIATE_KERNEL("softshrink_half", softshrink, half)
INSTANTIATE_KERNEL("softshrink_bfloat", softshrink, bfloat)
INSTANTIATE_KERNEL("softshrink_grad_float", softshrink_grad, float)
INSTANTIATE_KERNEL("softshrink_grad_half", softshrink_grad, half)
INSTANTIATE_KERNEL("softshrink_grad_bfloat", softshrink_grad, bfloat)
