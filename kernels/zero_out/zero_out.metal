// ZeroOut: elements are only moved, so there is one kernel per size, for any dtype of it.

#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

template <typename Bits>
kernel void zero_out(device const Bits* to_zero [[buffer(0)]], device Bits* zeroed [[buffer(1)]],
                     constant ulong& n_elements [[buffer(2)]],
                     uint2 position [[thread_position_in_grid]],
                     uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i < n_elements) zeroed[i] = i == 0 ? to_zero[0] : Bits(0);
}

INSTANTIATE_KERNEL("zero_out_1", zero_out, uchar)
INSTANTIATE_KERNEL("zero_out_2", zero_out, ushort)
INSTANTIATE_KERNEL("zero_out_4", zero_out, uint)
INSTANTIATE_KERNEL("zero_out_8", zero_out, ulong)
