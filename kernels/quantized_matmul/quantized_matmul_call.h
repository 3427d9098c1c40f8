// Arguments of a checked call of MetalQuantizedMatMul or MetalDequantize, for the kernels of every
// device.

#ifndef METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_CALL_H_
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_CALL_H_

#include "kernels/quantized_matmul/quantized_matmul_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// `first` is where codes are among the inputs; scales and minima follow.
inline QuantizedParams ToQuantizedParams(const OpCall& call, int64_t rows, int64_t inputs,
                                         int first) {
  QuantizedParams p = {};
  const ArgShape &codes = call.in_shapes[first], &scales = call.in_shapes[first + 1];
  p.rows = rows;
  p.inputs = inputs;
  p.outputs = codes.dims[0];
  p.bytes = codes.dims[1];
  p.groups = scales.dims[1];
  p.block = call.Int("block") > 0 ? call.Int("block") : inputs;
  p.row_groups = scales.dims[0] == p.outputs ? p.groups : 0;
  const ArgShape& minima = call.in_shapes[first + 2];
  p.use_minima = minima.rank() == 2 ? 1 : 0;
  p.middle = static_cast<float>(int64_t{1} << (call.Int("bits") - 1));
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_CALL_H_
