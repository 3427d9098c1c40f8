// Moves elements between strided tensors. Only the size of an element matters, so every dtype
// shares five kernels.

#include "device/kernels/strided.metal.h"

using namespace metal;

template <typename T>
kernel void copy_strided(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                         constant StridedParams& params [[buffer(2)]],
                         uint3 position [[thread_position_in_grid]]) {
  out[strided_index(params, params.operands[1], position)] =
      in[strided_index(params, params.operands[0], position)];
}

INSTANTIATE_KERNEL("copy_1", copy_strided, uchar)
INSTANTIATE_KERNEL("copy_2", copy_strided, ushort)
INSTANTIATE_KERNEL("copy_4", copy_strided, uint)
INSTANTIATE_KERNEL("copy_8", copy_strided, ulong)
INSTANTIATE_KERNEL("copy_16", copy_strided, ulong2)
