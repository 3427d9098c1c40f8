// Slices of a tensor changed by indices: used by other ops than the scatters.

#ifndef METAL_OPS_DEVICE_KERNELS_SCATTER_H_
#define METAL_OPS_DEVICE_KERNELS_SCATTER_H_

#include "device/kernels/scatter_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// `indices` [...] of rows of a tensor of `shape`; the result's or the updates' shape is `slices`.
Status PlanRows(const char* op, const Shape& shape, const Tensor& indices, ScatterParams* p,
                Shape* slices);

// The grid of shaders that walk over `p`, whose rows each thread has some of.
Status ScatterGrid(const char* op, ScatterParams* p, Grid* grid);

// Changes `out` by the updates, in their order: "add", "sub", "mul", "div", "max", "min", "update".
// `signless`: integers of either sign share a shader.
Status EncodeScatter(Encoder& encoder, const char* op, const char* change, bool signless,
                     ScatterParams p, const Tensor& indices, const Tensor& updates,
                     const Tensor& out);

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_SCATTER_H_
