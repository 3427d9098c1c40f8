// Where sources of before look for kernels/tensorflow/variable.h.

#ifndef METAL_OPS_COMPAT_KERNELS_RUNTIME_VARIABLE_H_
#define METAL_OPS_COMPAT_KERNELS_RUNTIME_VARIABLE_H_

#include "kernels/tensorflow/variable.h"

#endif  // METAL_OPS_COMPAT_KERNELS_RUNTIME_VARIABLE_H_
