// Outputs that are pieces of an input, as they lie there or in another order of its elements.

#ifndef METAL_OPS_DEVICE_KERNELS_PIECES_H_
#define METAL_OPS_DEVICE_KERNELS_PIECES_H_

#include <vector>

#include "device/kernels/strided.h"
#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

struct Piece {
  Shape shape;  // of the output
  Walk from;    // over the input
  Shape along;  // the shape of the walk, which has as many elements as `shape`
};

// Output k is pieces[k] of the input: the same memory where it lies there in a row that shaders can be given, else a
// copy. Where both lie in host memory (host_int32.h), all of it is shared, or a part copied there.
Status OutputPieces(KernelContext* ctx, const char* op, int input, const Tensor& in,
                    const std::vector<Piece>& pieces, bool in_host_memory = false);

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_PIECES_H_
