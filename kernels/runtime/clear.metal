// Clears 2-byte elements where a blit, which fills whole words, cannot.

#include <metal_stdlib>

#include "kernels/msl/grid.h"

using namespace metal;

kernel void clear_halves(device ushort* values [[buffer(0)]], constant ulong& n [[buffer(1)]],
                         uint2 position [[thread_position_in_grid]],
                         uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i < n) values[i] = 0;
}
