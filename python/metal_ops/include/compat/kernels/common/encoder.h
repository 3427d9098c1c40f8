// Where sources of before look for kernels/runtime/encoder.h.

#ifndef METAL_OPS_COMPAT_KERNELS_COMMON_ENCODER_H_
#define METAL_OPS_COMPAT_KERNELS_COMMON_ENCODER_H_

#include "kernels/runtime/encoder.h"

#endif  // METAL_OPS_COMPAT_KERNELS_COMMON_ENCODER_H_
