// Outputs that are parts of an input's memory.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_PART_H_
#define METAL_OPS_KERNELS_TENSORFLOW_PART_H_

#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// Output `i`, of `shape`, lies at `address`, which is memory of input `input` by the device's own arithmetic. Nothing
// writes into either while both are there. `release` gets the address when the output's last user is gone, and before
// the input's memory goes.
Status SetPartOutput(KernelContext* ctx, int input, int i, const Shape& shape, void* address,
                     void (*release)(void* address));

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_PART_H_
