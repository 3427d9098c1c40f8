// Shaders of ops that are a formula of their inputs' elements (OpBuilder::Elementwise in op.h): the
// formula is the struct that the CPU kernel compiles, too. Half and bfloat are computed in float.
//
//   ELEMENTWISE_1("softshrink", Softshrink)      // of one input; float, half and bfloat
//   ELEMENTWISE_2("softshrink_grad", SoftshrinkGrad)

#ifndef METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_METAL_H_
#define METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_METAL_H_

#include <metal_stdlib>

#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

// A formula's floats: its own copy constructor takes no reference into constant memory everywhere.
template <typename Formula>
inline Formula thread_copy(constant Formula& formula) {
  Formula copy;
  for (uint i = 0; i < sizeof(Formula) / sizeof(float); ++i) {
    ((thread float*)&copy)[i] = ((constant float*)&formula)[i];
  }
  return copy;
}

template <typename Formula, typename T>
kernel void elementwise_1(device const T* a [[buffer(0)]], device T* out [[buffer(1)]],
                          constant ulong& n_elements [[buffer(2)]],
                          constant Formula& formula [[buffer(3)]],
                          uint2 position [[thread_position_in_grid]],
                          uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  const Formula f = thread_copy(formula);
  if (i < n_elements) out[i] = T(f(float(a[i])));
}

template <typename Formula, typename T>
kernel void elementwise_2(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                          device T* out [[buffer(2)]], constant ulong& n_elements [[buffer(3)]],
                          constant Formula& formula [[buffer(4)]],
                          uint2 position [[thread_position_in_grid]],
                          uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  const Formula f = thread_copy(formula);
  if (i < n_elements) out[i] = T(f(float(a[i]), float(b[i])));
}

#define ELEMENTWISE_1(name, formula)                               \
  INSTANTIATE_KERNEL(name "_float", elementwise_1, formula, float) \
  INSTANTIATE_KERNEL(name "_half", elementwise_1, formula, half)   \
  INSTANTIATE_KERNEL(name "_bfloat", elementwise_1, formula, bfloat)

#define ELEMENTWISE_2(name, formula)                               \
  INSTANTIATE_KERNEL(name "_float", elementwise_2, formula, float) \
  INSTANTIATE_KERNEL(name "_half", elementwise_2, formula, half)   \
  INSTANTIATE_KERNEL(name "_bfloat", elementwise_2, formula, bfloat)

#endif  // METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_METAL_H_
