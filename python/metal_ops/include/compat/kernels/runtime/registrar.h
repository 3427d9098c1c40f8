// Where sources of before look for kernels/tensorflow/registrar.h.

#ifndef METAL_OPS_COMPAT_KERNELS_RUNTIME_REGISTRAR_H_
#define METAL_OPS_COMPAT_KERNELS_RUNTIME_REGISTRAR_H_

#include "kernels/tensorflow/registrar.h"

#endif  // METAL_OPS_COMPAT_KERNELS_RUNTIME_REGISTRAR_H_
