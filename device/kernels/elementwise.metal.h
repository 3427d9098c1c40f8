// Elementwise shaders of two tensors that are broadcast, and the tables' macros.

#ifndef METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_METAL_H_

#include "device/kernels/strided.metal.h"
#include "kernels/runtime/elementwise.metal.h"

template <typename Op, typename T, typename Out = T>
kernel void binary_strided(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                           device Out* out [[buffer(2)]],
                           constant StridedParams& params [[buffer(3)]],
                           uint3 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const Wide x = Wide(a[strided_index(params, params.operands[0], position)]);
  const Wide y = Wide(b[strided_index(params, params.operands[1], position)]);
  out[strided_index(params, params.operands[2], position)] = Out(Op()(x, y));
}

// Rows of few dimensions: [n, c] and [c], [n, 1] and [n, c], ...
template <typename Op, typename T, int StrideA, int StrideB, typename Out = T>
kernel void binary_rows(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                        device Out* out [[buffer(2)]], constant StridedParams& params [[buffer(3)]],
                        uint3 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const Wide x = Wide(a[row_index<StrideA>(params, params.operands[0], position)]);
  const Wide y = Wide(b[row_index<StrideB>(params, params.operands[1], position)]);
  out[row_index<1>(params, params.operands[2], position)] = Out(Op()(x, y));
}

// Three tensors: the first has one element per thread, the others have, or are single values.
template <typename Formula, typename A, typename T, int StrideB, int StrideC>
kernel void elementwise_3(device const A* a [[buffer(0)]], device const T* b [[buffer(1)]],
                          device const T* c [[buffer(2)]], device T* out [[buffer(3)]],
                          constant ulong& first [[buffer(4)]],
                          constant FormulaFloats<Formula>& formula [[buffer(5)]],
                          uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const Formula f = thread_copy(formula);
  (out + first)[i] =
      T(f(typename wide<A>::type((a + first)[i]), Wide((b + first * StrideB)[i * StrideB]),
          Wide((c + first * StrideC)[i * StrideC])));
}

// Shaders for LaunchBinary (elementwise.h). Rows that repeat take a shader of their own where they are
// frequent: of floats and of 64-bit integers.
#define BINARY_FEW(name, op, type)                                        \
  INSTANTIATE_KERNEL(name "_" #type "_11", elementwise_2, op, type, 1, 1) \
  INSTANTIATE_KERNEL(name "_" #type "_10", elementwise_2, op, type, 1, 0) \
  INSTANTIATE_KERNEL(name "_" #type "_01", elementwise_2, op, type, 0, 1) \
  INSTANTIATE_KERNEL(name "_" #type "_strided", binary_strided, op, type)
#define BINARY(name, op, type)                                               \
  BINARY_FEW(name, op, type)                                                 \
  INSTANTIATE_KERNEL(name "_" #type "_rows_11", binary_rows, op, type, 1, 1) \
  INSTANTIATE_KERNEL(name "_" #type "_rows_10", binary_rows, op, type, 1, 0) \
  INSTANTIATE_KERNEL(name "_" #type "_rows_01", binary_rows, op, type, 0, 1)
#define BINARY_FLOATS(name, op) \
  BINARY(name, op, float)       \
  BINARY(name, op, half)        \
  IF_BFLOAT(BINARY(name, op, bfloat))

#define COMPARE_FEW(name, op, type)                                             \
  INSTANTIATE_KERNEL(name "_" #type "_11", elementwise_2, op, type, 1, 1, bool) \
  INSTANTIATE_KERNEL(name "_" #type "_10", elementwise_2, op, type, 1, 0, bool) \
  INSTANTIATE_KERNEL(name "_" #type "_01", elementwise_2, op, type, 0, 1, bool) \
  INSTANTIATE_KERNEL(name "_" #type "_strided", binary_strided, op, type, bool)
#define COMPARE(name, op, type)                                                    \
  COMPARE_FEW(name, op, type)                                                      \
  INSTANTIATE_KERNEL(name "_" #type "_rows_11", binary_rows, op, type, 1, 1, bool) \
  INSTANTIATE_KERNEL(name "_" #type "_rows_10", binary_rows, op, type, 1, 0, bool) \
  INSTANTIATE_KERNEL(name "_" #type "_rows_01", binary_rows, op, type, 0, 1, bool)
#define COMPARE_FLOATS(name, op) \
  COMPARE(name, op, float)       \
  COMPARE(name, op, half)        \
  IF_BFLOAT(COMPARE(name, op, bfloat))

// Two tensors of one shape: gradients.
#define SLOPE(name, op)                                                \
  INSTANTIATE_KERNEL(name "_float_11", elementwise_2, op, float, 1, 1) \
  INSTANTIATE_KERNEL(name "_half_11", elementwise_2, op, half, 1, 1)   \
  IF_BFLOAT(INSTANTIATE_KERNEL(name "_bfloat_11", elementwise_2, op, bfloat, 1, 1))

#endif  // METAL_OPS_DEVICE_KERNELS_ELEMENTWISE_METAL_H_
