// Arguments of a call of ResourceCacheRows, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_CACHE_ROWS_CACHE_ROWS_CALL_H_
#define METAL_OPS_KERNELS_CACHE_ROWS_CACHE_ROWS_CALL_H_

#include "kernels/cache_rows/cache_rows_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline CacheRowsParams ToCacheRowsParams(const OpCall& call) {
  CacheRowsParams p = {};
  p.capacity = call.Size("capacity");
  p.rows = call.Size("n");
  p.size = call.Size("size");
  p.heads = static_cast<uint32_t>(call.Size("heads"));
  p.ring = call.Bool("ring") ? 1 : 0;
  return p;
}
// Values that lie in host memory.
inline const int32_t* CacheStarts(const OpCall& call) {
  return static_cast<const int32_t*>(call.HostValue(2));
}
inline const int32_t* CacheCounts(const OpCall& call) {
  return static_cast<const int32_t*>(call.HostValue(3));
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_CACHE_ROWS_CACHE_ROWS_CALL_H_
