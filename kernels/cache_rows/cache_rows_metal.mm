// ResourceCacheRows on the Metal device.

#include "kernels/cache_rows/cache_rows_call.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

Status CacheRows(MetalCall& call) {
  const CacheRowsParams params = ToCacheRowsParams(call);
  const int64_t batch = call.Size("batch");
  if (params.capacity == 0) return Status();
  return call.Launch({"cache_rows", call.in(1).element_bytes()},
                     Grid(params.size, params.rows, batch * params.heads),
                     {{"cache", Value(call.in(0)).Untyped()},
                      {"rows", Value(call.in(1)).Untyped()},
                      {"starts", HostArray(CacheStarts(call), batch)},
                      {"counts", HostArray(CacheCounts(call), batch)},
                      {"params", params}});
}
METAL_KERNEL("ResourceCacheRows", CacheRows);

}  // namespace
}  // namespace metal_ops
