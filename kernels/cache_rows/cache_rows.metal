// ResourceCacheRows: elements are only moved, so there is one kernel per size, for any dtype of it.

#include <metal_stdlib>

#include "kernels/cache_rows/cache_rows_params.h"
#include "kernels/msl/instantiate.h"

template <typename Bits>
[[kernel]] void cache_rows(device Bits* cache [[buffer(0)]], device const Bits* rows [[buffer(1)]],
                           device const int* starts [[buffer(2)]],
                           device const int* counts [[buffer(3)]],
                           constant CacheRowsParams& params [[buffer(4)]],
                           uint3 position [[thread_position_in_grid]]) {
  const uint batch = position.z / params.heads;
  const long slot = cache_slot(params, starts[batch], counts[batch], position.y);
  if (slot < 0) return;
  const long to = (long(position.z) * params.capacity + slot) * params.size + position.x;
  cache[to] = rows[(long(position.z) * params.rows + position.y) * params.size + position.x];
}

INSTANTIATE_KERNEL("cache_rows_2", cache_rows, ushort)
INSTANTIATE_KERNEL("cache_rows_4", cache_rows, uint)
