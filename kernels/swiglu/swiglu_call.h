// Arguments of a call of Swiglu or its gradient, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_SWIGLU_SWIGLU_CALL_H_
#define METAL_OPS_KERNELS_SWIGLU_SWIGLU_CALL_H_

#include "kernels/runtime/op.h"
#include "kernels/swiglu/swiglu_params.h"

namespace metal_ops {

// Whether `gate` holds both, each half of its last dimension. Tensors of one shape never do.
inline bool GateHoldsUp(const ArgShape& gate, const ArgShape& up) {
  return up.rank() == 1 && up.dims[0] == 0 && !(gate.rank() == 1 && gate.dims[0] == 0);
}

inline SwigluParams ToSwigluParams(const OpCall& call, int gate) {
  SwigluParams p = {};
  const ArgShape& shape = call.in_shapes[gate];
  int64_t n = 1;
  for (const int64_t size : shape.dims) n *= size;
  if (GateHoldsUp(shape, call.in_shapes[gate + 1])) {
    p.columns = p.up_offset = shape.dims.back() / 2;
    p.rows = p.columns == 0 ? 0 : n / (2 * p.columns);
  } else {
    p.columns = n;
    p.rows = 1;
  }
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_SWIGLU_SWIGLU_CALL_H_
