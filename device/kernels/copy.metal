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

template <typename T, int Step>
kernel void copy_rows(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                      constant StridedParams& params [[buffer(2)]],
                      uint3 position [[thread_position_in_grid]]) {
  out[row_index<1>(params.operands[1], position)] =
      in[row_index<Step>(params.operands[0], position)];
}

#define COPY(bytes, type)                                          \
  INSTANTIATE_KERNEL("copy_" bytes "_strided", copy_strided, type) \
  INSTANTIATE_KERNEL("copy_" bytes "_rows_1", copy_rows, type, 1)  \
  INSTANTIATE_KERNEL("copy_" bytes "_rows_0", copy_rows, type, 0)
COPY("1", uchar)
COPY("2", ushort)
COPY("4", uint)
COPY("8", ulong)
COPY("16", ulong2)
