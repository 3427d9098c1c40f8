// A part of a row that a thread takes over.

#ifndef METAL_OPS_DEVICE_KERNELS_GATHER_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_GATHER_METAL_H_

#include "device/kernels/gather_params.h"

// All are read before any is written: compilers then do not need to know that the two do not
// overlap.
template <uint kCount, typename T>
inline void copy_block(device const T* from, device T* to) {
  T block[kCount];
  for (uint k = 0; k < kCount; ++k) block[k] = from[k];
  for (uint k = 0; k < kCount; ++k) to[k] = block[k];
}

// Up to kBlock elements, `left` at most; zeros where there is no such row.
template <uint kBlock = GATHER_BLOCK, typename T>
inline void gather_block(device const T* from, device T* to, bool inside, ulong left) {
  const uint width = uint(metal::min(ulong(kBlock), left));
  if (inside && width == kBlock) {
    copy_block<kBlock>(from, to);
    return;
  }
  uint k = 0;
  if (kBlock > GATHER_BLOCK && inside) {
    for (; k + GATHER_BLOCK <= width; k += GATHER_BLOCK) copy_block<GATHER_BLOCK>(from + k, to + k);
  }
  for (; k < width; ++k) to[k] = inside ? from[k] : T(0);
}

#endif  // METAL_OPS_DEVICE_KERNELS_GATHER_METAL_H_
