// Sums and means. Every thread adds REDUCE_CHUNK elements at most and the passes are repeated on
// what they leave, so the rounding error grows with the number of passes and not with the number of
// elements.

#include "device/kernels/strided.metal.h"

using namespace metal;

template <typename T, typename Sum, typename Out>
kernel void reduce_sum(device const T* in [[buffer(0)]], device Out* out [[buffer(1)]],
                       constant ReduceParams& params [[buffer(2)]],
                       uint2 position [[thread_position_in_grid]]) {
  long base = 0;
  uint rest = position.y;
  for (uint d = 0; rest != 0; ++d) {
    base += long(rest % params.kept_dims[d]) * params.kept_strides[d];
    rest /= params.kept_dims[d];
  }
  ulong at = ulong(position.x) * params.chunk;
  const ulong end = min(at + params.chunk, params.count);
  Sum sum = Sum(0);
  while (at < end) {
    // A run along the innermost reduced dimension.
    const ulong inner = at % params.reduced_dims[0];
    ulong outer = at / params.reduced_dims[0];
    long index = base + long(inner) * params.reduced_strides[0];
    for (uint d = 1; outer != 0; ++d) {
      index += long(outer % params.reduced_dims[d]) * params.reduced_strides[d];
      outer /= params.reduced_dims[d];
    }
    const uint run = uint(min(ulong(params.reduced_dims[0]) - inner, end - at));
    const long stride = params.reduced_strides[0];
    uint i = 0;
    if (stride == 1) {
      // Eight sums that do not wait for each other.
      Sum sums[8] = {};
      for (; i + 8 <= run; i += 8) {
        for (uint k = 0; k < 8; ++k) sums[k] += Sum(in[index + long(i + k)]);
      }
      sum +=
          ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (; i < run; ++i) sum += Sum(in[index + long(i) * stride]);
    at += run;
  }
  if (params.divisor != 1.0f) sum = Sum(sum / Sum(params.divisor));
  out[ulong(position.y) * params.chunks + position.x] = Out(sum);
}

INSTANTIATE_KERNEL("sum_float_float", reduce_sum, float, float, float)
INSTANTIATE_KERNEL("sum_half_float", reduce_sum, half, float, float)
INSTANTIATE_KERNEL("sum_bfloat_float", reduce_sum, bfloat, float, float)
INSTANTIATE_KERNEL("sum_half_half", reduce_sum, half, float, half)
INSTANTIATE_KERNEL("sum_bfloat_bfloat", reduce_sum, bfloat, float, bfloat)
INSTANTIATE_KERNEL("sum_float_half", reduce_sum, float, float, half)
INSTANTIATE_KERNEL("sum_float_bfloat", reduce_sum, float, float, bfloat)
INSTANTIATE_KERNEL("sum_long_long", reduce_sum, long, long, long)
