// Tensors' shapes as ArgShape in Metal kernels, so that they say what CPU kernels say.

#ifndef METAL_OPS_KERNELS_RUNTIME_METAL_ARG_SHAPES_H_
#define METAL_OPS_KERNELS_RUNTIME_METAL_ARG_SHAPES_H_

#include "kernels/runtime/arg_shapes.h"
#include "kernels/runtime/op_kernel.h"

namespace metal_ops {

inline Status ToStatus(const ArgShapes& shapes) {
  return shapes.ok() ? Status() : InvalidArgument(shapes.error());
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_METAL_ARG_SHAPES_H_
