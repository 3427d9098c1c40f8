// Shared by all shaders over strided tensors.

#ifndef METAL_OPS_DEVICE_KERNELS_STRIDED_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_STRIDED_METAL_H_

#include <metal_stdlib>

#include "device/kernels/strided_params.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

// Element of `operand` for the thread at `position`.
inline long strided_index(constant StridedParams& params, constant StridedOperand& operand,
                          uint3 position) {
  long index = operand.offset + long(position.x) * operand.strides[0] +
               long(position.y) * operand.strides[1];
  uint rest = position.z;
  for (uint d = 2; rest != 0; ++d) {
    index += long(rest % params.dims[d]) * operand.strides[d];
    rest /= params.dims[d];
  }
  return index;
}

// The same for a loop of STRIDED_ROW_DIMS dimensions at most, whose inner steps are known when the shader
// is compiled: these run several elements at a time. STEP_OF_OPERAND: the operand says it.
#define STEP_OF_OPERAND 2
template <int Step>
inline long row_index(constant StridedParams& params, constant StridedOperand& operand,
                      uint3 position) {
  const uint outer = position.z / params.dims[2];
  const long step = Step == STEP_OF_OPERAND ? operand.strides[0] : long(Step);
  return operand.offset + long(position.x) * step + long(position.y) * operand.strides[1] +
         long(position.z - outer * params.dims[2]) * operand.strides[2] +
         long(outer) * operand.strides[3];
}

#endif  // METAL_OPS_DEVICE_KERNELS_STRIDED_METAL_H_
