// GatherV2 and Where: rows by their indices, and the indices of true elements.

#include <metal_stdlib>

#include "device/kernels/gather.metal.h"
#include "device/kernels/gather_params.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// Grid: Flat, the elements of the result. A number out of range gives zeros, as on TensorFlow's
// other GPUs.
template <typename T, typename I>
kernel void gather(device const T* params_ [[buffer(0)]], device const I* indices [[buffer(1)]],
                   device T* out [[buffer(2)]], constant GatherParams& p [[buffer(3)]],
                   uint2 position [[thread_position_in_grid]], uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= p.total) return;
  // 32-bit divisions where they do: 64-bit ones are many instructions.
  ulong inner, index, outer, batch;
  if (p.total <= 0xffffffffUL) {
    const uint row = uint(i) / uint(p.inner), block = row / uint(p.indices);
    inner = uint(i) - row * uint(p.inner);
    index = row - block * uint(p.indices);
    batch = block / uint(p.outer);
    outer = block - uint(batch) * uint(p.outer);
  } else {
    const ulong row = i / p.inner, block = row / p.indices;
    inner = i - row * p.inner;
    index = row - block * p.indices;
    batch = block / p.outer;
    outer = block - batch * p.outer;
  }
  const long at = long(indices[batch * p.indices + index]);
  const bool inside = at >= 0 && at < long(p.rows);
  out[i] =
      inside ? params_[((batch * p.outer + outer) * p.rows + ulong(at)) * p.inner + inner] : T(0);
}

// Grid: blocks of kBlock elements of a row, indices, batches times dimensions outside the axis.
template <typename T, typename I, uint kBlock>
kernel void gather_rows(device const T* params_ [[buffer(0)]],
                        device const I* indices [[buffer(1)]], device T* out [[buffer(2)]],
                        constant GatherParams& p [[buffer(3)]],
                        uint3 position [[thread_position_in_grid]]) {
  const ulong batch = position.z / uint(p.outer);
  const long at = long(indices[batch * p.indices + position.y]);
  const ulong first = ulong(position.x) * kBlock;
  device T* const to = out + (ulong(position.z) * p.indices + position.y) * p.inner + first;
  const bool inside = at >= 0 && at < long(p.rows);
  gather_block<kBlock>(
      params_ + (ulong(position.z) * p.rows + ulong(inside ? at : 0)) * p.inner + first, to, inside,
      p.inner - first);
}

#define GATHER(bytes, type)                                       \
  INSTANTIATE_KERNEL("gather_" bytes "_int", gather, type, int)   \
  INSTANTIATE_KERNEL("gather_" bytes "_long", gather, type, long) \
  GATHER_ROWS("gather_rows_" bytes, type, GATHER_BLOCK)           \
  GATHER_ROWS("gather_rows_many_" bytes, type, GATHER_MANY_BYTES / sizeof(type))
#define GATHER_ROWS(name, type, block)                           \
  INSTANTIATE_KERNEL(name "_int", gather_rows, type, int, block) \
  INSTANTIATE_KERNEL(name "_long", gather_rows, type, long, block)
GATHER("1", uchar)
GATHER("2", ushort)
GATHER("4", uint)
GATHER("8", ulong)
GATHER("16", ulong2)

// Grid: pieces of WHERE_PIECE elements.
kernel void where_count(device const bool* x [[buffer(0)]], device uint* counts [[buffer(1)]],
                        constant WhereParams& p [[buffer(2)]],
                        uint piece [[thread_position_in_grid]]) {
  const ulong first = ulong(piece) * WHERE_PIECE, last = min(first + WHERE_PIECE, p.total);
  uint count = 0;
  for (ulong i = first; i < last; ++i) count += x[i] ? 1 : 0;
  counts[piece] = count;
}

// Grid: pieces; `firsts` says where each one's rows go.
kernel void where_write(device const bool* x [[buffer(0)]],
                        device const ulong* firsts [[buffer(1)]], device long* out [[buffer(2)]],
                        constant WhereParams& p [[buffer(3)]],
                        uint piece [[thread_position_in_grid]]) {
  const ulong first = ulong(piece) * WHERE_PIECE, last = min(first + WHERE_PIECE, p.total);
  device long* to = out + firsts[piece] * p.rank;
  // The place of the element before; far places are divided again.
  const uint last_dim = p.rank - 1;
  ulong at[WHERE_DIMS], rest = first;
  for (uint d = p.rank; d-- > 0;) {
    at[d] = rest % p.dims[d];
    rest /= p.dims[d];
  }
  ulong seen = first;
  for (ulong i = first; i < last; ++i) {
    if (!x[i]) continue;
    at[last_dim] += i - seen;
    seen = i;
    for (uint d = last_dim; d > 0 && at[d] >= p.dims[d]; --d) {
      at[d - 1] += at[d] / p.dims[d];
      at[d] %= p.dims[d];
    }
    for (uint d = 0; d < p.rank; ++d) to[d] = long(at[d]);
    to += p.rank;
  }
}
