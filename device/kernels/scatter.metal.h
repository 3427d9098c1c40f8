// The elements of a tensor that a thread changes for an index.

#ifndef METAL_OPS_DEVICE_KERNELS_SCATTER_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_SCATTER_METAL_H_

#include <metal_stdlib>

#include "device/kernels/scatter_params.h"

// The row that index `i` names; `rows` if it is outside.
template <typename I>
inline ulong scatter_row(constant ScatterParams& p, device const I* indices, ulong i) {
  if (p.depth == 1) {
    const long at = long(indices[i]);
    return at < 0 || at >= long(p.rows) ? p.rows : ulong(at);
  }
  ulong row = 0;
  for (uint d = 0; d < p.depth; ++d) {
    const long at = long(indices[i * p.depth + d]);
    if (at < 0 || at >= long(p.dims[d])) return p.rows;
    row = row * p.dims[d] + ulong(at);
  }
  return row;
}

// Elements from `at` on of the tensor, and from `from` on of the updates.
struct ScatterPart {
  ulong at, from, elements;
};

// The part of index `i` that the thread changes: none, if the row is another's or outside. Grid: parts of a
// slice's elements, ranges of rows.
template <typename I>
inline ScatterPart scatter_part(constant ScatterParams& p, device const I* indices, ulong i,
                                uint2 position) {
  const ulong begin = ulong(position.y) * p.range, end = metal::min(begin + p.range, p.rows);
  const ulong first = ulong(position.x) * p.part, last = metal::min(first + p.part, p.inner);
  const ulong row = scatter_row(p, indices, i);
  if (row < begin || row >= end) return {0, 0, 0};
  return {row * p.inner + first, i * p.inner + first, last - first};
}

#endif  // METAL_OPS_DEVICE_KERNELS_SCATTER_METAL_H_
