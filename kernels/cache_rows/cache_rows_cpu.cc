// ResourceCacheRows on the CPU.

#include "kernels/cache_rows/cache_rows_call.h"

namespace metal_ops {
namespace {

void CacheRows(CpuCall& call) {
  const CacheRowsParams p = ToCacheRowsParams(call);
  if (call.inputs[1].n_elements == 0 || p.capacity == 0) return;
  const int64_t row = p.size * call.inputs[1].n_bytes / call.inputs[1].n_elements;
  char* const cache = call.variable<char>(0);
  const char* const rows = call.in<char>(1);
  for (int64_t h = 0; h < call.Size("batch") * p.heads; ++h) {
    const int64_t start = CacheStarts(call)[h / p.heads], count = CacheCounts(call)[h / p.heads];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = cache_slot(p, start, count, i);
      if (slot < 0) continue;
      std::memcpy(cache + (h * p.capacity + slot) * row, rows + (h * p.rows + i) * row, row);
    }
  }
}
CPU_KERNEL("ResourceCacheRows", CacheRows);

}  // namespace
}  // namespace metal_ops
