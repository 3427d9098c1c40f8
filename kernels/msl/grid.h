// The element that a thread works on.

#ifndef METAL_OPS_KERNELS_MSL_GRID_H_
#define METAL_OPS_KERNELS_MSL_GRID_H_

#include <metal_stdlib>

// Under Grid::Flat(n) on the host side (kernels/runtime/encoder.h). 64 bits: tensors may have more
// than 2^32 elements. The last row is partly idle, so compare with the number of elements.
inline ulong flat_index(uint2 position, uint2 threads) {
  return ulong(position.y) * ulong(threads.x) + ulong(position.x);
}

#endif  // METAL_OPS_KERNELS_MSL_GRID_H_
