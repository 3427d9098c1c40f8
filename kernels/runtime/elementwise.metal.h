// Shaders that are a formula of their inputs' elements: of ops that say so in their declaration
// (OpBuilder::Elementwise in op.h), whose formula is the struct that the CPU kernel compiles, too,
// and of the device's. Half and bfloat are computed in float. LaunchElementwise (elementwise.h)
// launches them.
//
//   ELEMENTWISE_1("softshrink", Softshrink)      // of one input; float, half and bfloat
//   ELEMENTWISE_2("softshrink_grad", SoftshrinkGrad)

#ifndef METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_METAL_H_
#define METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_METAL_H_

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

// A formula's floats. A formula without any still has one here, which is never read: Apple's
// compiler takes no empty struct for a buffer.
template <typename Formula>
struct FormulaFloats {
  float at[sizeof(Formula) < sizeof(float) ? 1 : sizeof(Formula) / sizeof(float)];
};

// The formula's own copy constructor takes no reference into constant memory everywhere.
template <typename Formula>
inline Formula thread_copy(constant FormulaFloats<Formula>& floats) {
  Formula copy;
  for (uint i = 0; i < sizeof(Formula) / sizeof(float); ++i) {
    ((thread float*)&copy)[i] = floats.at[i];
  }
  return copy;
}

// From element `first` on: tensors may have more elements than a grid has threads.
template <typename Formula, typename T, typename Out = T>
kernel void elementwise_1(device const T* a [[buffer(0)]], device Out* out [[buffer(1)]],
                          constant ulong& first [[buffer(2)]],
                          constant FormulaFloats<Formula>& formula [[buffer(3)]],
                          uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const Formula f = thread_copy(formula);
  (out + first)[i] = Out(f(Wide((a + first)[i])));
}

// StrideA and StrideB are 0 for a single value, 1 for one value per thread.
template <typename Formula, typename T, int StrideA = 1, int StrideB = 1, typename Out = T>
kernel void elementwise_2(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                          device Out* out [[buffer(2)]], constant ulong& first [[buffer(3)]],
                          constant FormulaFloats<Formula>& formula [[buffer(4)]],
                          uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const Formula f = thread_copy(formula);
  (out + first)[i] =
      Out(f(Wide((a + first * StrideA)[i * StrideA]), Wide((b + first * StrideB)[i * StrideB])));
}

#define ELEMENTWISE_1(name, formula)                               \
  INSTANTIATE_KERNEL(name "_float", elementwise_1, formula, float) \
  INSTANTIATE_KERNEL(name "_half", elementwise_1, formula, half)   \
  IF_BFLOAT(INSTANTIATE_KERNEL(name "_bfloat", elementwise_1, formula, bfloat))

#define ELEMENTWISE_2(name, formula)                               \
  INSTANTIATE_KERNEL(name "_float", elementwise_2, formula, float) \
  INSTANTIATE_KERNEL(name "_half", elementwise_2, formula, half)   \
  IF_BFLOAT(INSTANTIATE_KERNEL(name "_bfloat", elementwise_2, formula, bfloat))

#endif  // METAL_OPS_KERNELS_RUNTIME_ELEMENTWISE_METAL_H_
