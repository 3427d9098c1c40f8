// Arguments of a call of Rope, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_ROPE_ROPE_CALL_H_
#define METAL_OPS_KERNELS_ROPE_ROPE_CALL_H_

#include "kernels/rope/rope_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline RopeParams ToRopeParams(const OpCall& call) {
  RopeParams p = {};
  p.batch = call.Size("batch");
  p.heads = call.Size("heads");
  p.length = call.Size("length");
  p.size = call.Size("size");
  p.pairs = call.Size("pairs");
  p.batch_stride = call.Size("sequences") == 1 ? 0 : p.length;
  p.sign = call.Bool("inverse") ? -1.0f : 1.0f;
  p.interleaved = call.Bool("interleaved") ? 1 : 0;
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ROPE_ROPE_CALL_H_
