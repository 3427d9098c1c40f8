// A part of a row that a thread takes over.

#ifndef METAL_OPS_DEVICE_KERNELS_GATHER_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_GATHER_METAL_H_

#include "device/kernels/gather_params.h"

// Up to GATHER_BLOCK elements, `left` at most; zeros where there is no such row. All are read before
// any is written: compilers then need not know that the two do not overlap.
template <typename T>
inline void gather_block(device const T* from, device T* to, bool inside, ulong left) {
  const uint width = uint(metal::min(ulong(GATHER_BLOCK), left));
  if (inside && width == GATHER_BLOCK) {
    T block[GATHER_BLOCK];
    for (uint k = 0; k < GATHER_BLOCK; ++k) block[k] = from[k];
    for (uint k = 0; k < GATHER_BLOCK; ++k) to[k] = block[k];
  } else {
    for (uint k = 0; k < width; ++k) to[k] = inside ? from[k] : T(0);
  }
}

#endif  // METAL_OPS_DEVICE_KERNELS_GATHER_METAL_H_
