// The type to calculate in: half and bfloat go through float.

#ifndef METAL_OPS_KERNELS_MSL_WIDE_H_
#define METAL_OPS_KERNELS_MSL_WIDE_H_

#include <metal_stdlib>

#include "kernels/msl/bfloat.h"

template <typename T>
struct wide {
  using type = T;
};
template <>
struct wide<half> {
  using type = float;
};
IF_BFLOAT(template <> struct wide<bfloat> { using type = float; };)

#endif  // METAL_OPS_KERNELS_MSL_WIDE_H_
