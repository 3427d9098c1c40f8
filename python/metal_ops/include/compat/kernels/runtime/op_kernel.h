// Where sources of before look for kernels/tensorflow/op_kernel.h.

#ifndef METAL_OPS_COMPAT_KERNELS_RUNTIME_OP_KERNEL_H_
#define METAL_OPS_COMPAT_KERNELS_RUNTIME_OP_KERNEL_H_

#include "kernels/tensorflow/op_kernel.h"

#endif  // METAL_OPS_COMPAT_KERNELS_RUNTIME_OP_KERNEL_H_
