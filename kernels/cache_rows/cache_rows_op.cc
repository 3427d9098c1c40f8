// ResourceCacheRows: rows written into a variable in place, each sequence's at a place of its own.

#include <string>

#include "kernels/cache_rows/cache_rows_call.h"

namespace metal_ops {
namespace {

void CheckPlaces(OpCall& call) {
  const int64_t batch = call.Size("batch"), capacity = call.Size("capacity"), n = call.Size("n");
  if (CacheStarts(call) == nullptr || CacheCounts(call) == nullptr) return;
  for (int64_t b = 0; b < batch && call.shapes.ok(); ++b) {
    const int64_t start = CacheStarts(call)[b], count = CacheCounts(call)[b];
    const std::string of = "[" + std::to_string(b) + "]";
    call.shapes.Require(start >= 0,
                        "starts" + of + " must be 0 or more, got " + std::to_string(start) + ".");
    if (n >= 0) {
      call.shapes.Require(count >= 0 && count <= n,
                          "counts" + of + " must be between 0 and the " + std::to_string(n) +
                              " rows that are given, got " + std::to_string(count) + ".");
    }
    if (capacity < 0 || call.Bool("ring")) continue;
    call.shapes.Require(start + count <= capacity,
                        "the cache has room for " + std::to_string(capacity) +
                            " rows, and sequence " + std::to_string(b) + " would have " +
                            std::to_string(start + count) +
                            ". Make a larger one, or one with a window.");
  }
}

DECLARE_OP("ResourceCacheRows")
    .Doc(R"doc(
Writes rows into a variable in place, those of each sequence from a place of its own on.

cache[b, :, starts[b] + i] = rows[b, :, i] for i < counts[b]. Nothing else of the variable is read or written, unless somebody
still holds what was read of it before: that stays as it is.)doc")
    .Attr("T: {float, half, bfloat16}")
    .Attr("ring: bool = false",
          "Whether places are taken modulo the capacity, so that the oldest rows are overwritten.")
    .Variable("cache: T", "[batch, heads, capacity, size]",
              "The variable, [batch, heads, capacity, size].")
    .Input("rows: T", "[batch, heads, n, size]", "[batch, heads, n, size].")
    .Input("starts: int32", "[batch]", "Where the first row of each sequence goes, [batch].",
           Memory::kHost)
    .Input("counts: int32", "[batch]", "How many of the n rows each sequence has, [batch].",
           Memory::kHost)
    .Check(CheckPlaces)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
