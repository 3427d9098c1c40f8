// Ops of three tensors: Select by a condition, whatever the dtype, and ClipByValue.

#include "device/kernels/elementwise.metal.h"

using namespace metal;

struct Select {
  template <typename T>
  T operator()(bool condition, T a, T b) const {
    if (condition) return a;
    return b;
  }
};

template <typename T>
kernel void select_strided(device const bool* a [[buffer(0)]], device const T* b [[buffer(1)]],
                           device const T* c [[buffer(2)]], device T* out [[buffer(3)]],
                           constant StridedParams& params [[buffer(4)]],
                           constant StridedOperand& fourth [[buffer(5)]],
                           uint3 position [[thread_position_in_grid]]) {
  const bool condition = a[strided_index(params, params.operands[0], position)];
  const long from = condition ? strided_index(params, params.operands[1], position)
                              : strided_index(params, params.operands[2], position);
  const T chosen = condition ? b[from] : c[from];
  out[strided_index(params, fourth, position)] = chosen;
}

#define SELECT(bytes, type)                                                          \
  INSTANTIATE_KERNEL("select_" bytes "_11", elementwise_3, Select, bool, type, 1, 1) \
  INSTANTIATE_KERNEL("select_" bytes "_10", elementwise_3, Select, bool, type, 1, 0) \
  INSTANTIATE_KERNEL("select_" bytes "_01", elementwise_3, Select, bool, type, 0, 1) \
  INSTANTIATE_KERNEL("select_" bytes "_strided", select_strided, type)
SELECT("1", uchar)
SELECT("2", ushort)
SELECT("4", uint)
SELECT("8", ulong)
SELECT("16", ulong2)

// NaN stays.
struct Clip {
  template <typename T>
  T operator()(T x, T low, T high) const {
    const T below = x > high ? high : x;
    return below < low ? low : below;
  }
};

#define CLIP(type)                                                               \
  INSTANTIATE_KERNEL("clip_" #type "_11", elementwise_3, Clip, type, type, 1, 1) \
  INSTANTIATE_KERNEL("clip_" #type "_10", elementwise_3, Clip, type, type, 1, 0) \
  INSTANTIATE_KERNEL("clip_" #type "_01", elementwise_3, Clip, type, type, 0, 1) \
  INSTANTIATE_KERNEL("clip_" #type "_00", elementwise_3, Clip, type, type, 0, 0)
CLIP(float)
CLIP(half)
IF_BFLOAT(CLIP(bfloat))
CLIP(char)
CLIP(uchar)
CLIP(short)
CLIP(ushort)
CLIP(int)
CLIP(long)
