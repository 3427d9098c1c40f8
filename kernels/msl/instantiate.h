// Kernel templates -> named kernels.
//
//   template <typename T> kernel void twice(device const T* x [[buffer(0)]], ...) { ... }
//   INSTANTIATE_KERNEL("twice_float", twice, float)
//   INSTANTIATE_KERNEL("twice_half", twice, half)
//   IF_BFLOAT(INSTANTIATE_KERNEL("twice_bfloat", twice, bfloat))

#ifndef METAL_OPS_KERNELS_MSL_INSTANTIATE_H_
#define METAL_OPS_KERNELS_MSL_INSTANTIATE_H_

#include "kernels/msl/bfloat.h"

// `name` is the host's argument of newFunctionWithName:; then the template and its arguments.
#define INSTANTIATE_KERNEL(name, function, ...) \
  template [[host_name(name)]] [[kernel]] decltype(function<__VA_ARGS__>) function<__VA_ARGS__>;

#endif  // METAL_OPS_KERNELS_MSL_INSTANTIATE_H_
