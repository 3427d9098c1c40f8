// Arguments of a checked call of MetalLookupMatMul or MetalLookupWeights, for the kernels of every
// device.

#ifndef METAL_OPS_KERNELS_QUANTIZED_MATMUL_LOOKUP_MATMUL_CALL_H_
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_LOOKUP_MATMUL_CALL_H_

#include <algorithm>

#include "kernels/quantized_matmul/lookup_matmul_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// `first` is where codes are among the inputs; tables follow.
inline LookupParams ToLookupParams(const OpCall& call, int64_t rows, int64_t inputs, int first) {
  LookupParams p = {};
  const ArgShape& codes = call.in_shapes[first];
  p.rows = rows;
  p.inputs = inputs;
  p.outputs = codes.dims[0];
  p.bytes = codes.dims[1];
  p.group = call.Int("group") > 0 ? call.Int("group") : std::max<int64_t>(p.outputs, 1);
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_LOOKUP_MATMUL_CALL_H_
