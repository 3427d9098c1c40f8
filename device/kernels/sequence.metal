// Rows moved as other tensors say, and small ops: partitions, stitches, reversed sequences, folded edges,
// checks for NaN, cross products, coordinates.

#include <metal_stdlib>

#include "device/kernels/gather.metal.h"
#include "device/kernels/segment_params.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

using namespace metal;

// Where rows of each partition are: a thread writes those of its chunk to where the host says, in order.
// places [chunks, partitions]. Grid: chunks.
kernel void partition_places(device const int* partitions [[buffer(0)]],
                             device long* places [[buffer(1)]], device long* order [[buffer(2)]],
                             constant ulong& n [[buffer(3)]], constant ulong& chunk [[buffer(4)]],
                             constant int& parts [[buffer(5)]],
                             uint i [[thread_position_in_grid]]) {
  const ulong first = ulong(i) * chunk, last = min(first + chunk, n);
  device long* const place = places + ulong(i) * ulong(parts);
  for (ulong row = first; row < last; ++row) {
    const int part = partitions[row];
    if (part >= 0 && part < parts) order[place[part]++] = long(row);
  }
}
kernel void partition_counts(device const int* partitions [[buffer(0)]],
                             device long* counts [[buffer(1)]], constant ulong& n [[buffer(2)]],
                             constant ulong& chunk [[buffer(3)]], constant int& parts [[buffer(4)]],
                             uint i [[thread_position_in_grid]]) {
  const ulong first = ulong(i) * chunk, last = min(first + chunk, n);
  device long* const count = counts + ulong(i) * ulong(parts);
  for (int part = 0; part < parts; ++part) count[part] = 0;
  for (ulong row = first; row < last; ++row) {
    const int part = partitions[row];
    if (part >= 0 && part < parts) ++count[part];
  }
}

// Row i of `out` is row order[first + i] of `in`. Grid: blocks of inner, rows; or rows, inner (Long).
template <typename T, bool Long>
kernel void take_rows(device const T* in [[buffer(0)]], device const long* order [[buffer(1)]],
                      device T* out [[buffer(2)]], constant MoveParams& p [[buffer(3)]],
                      uint2 position [[thread_position_in_grid]]) {
  const ulong row = Long ? position.x : position.y;
  const ulong column = Long ? position.y : ulong(position.x) * GATHER_BLOCK;
  const ulong from = ulong(order[p.first + row]) * p.inner + column, to = row * p.inner + column;
  if (Long) {
    out[to] = in[from];
  } else {
    gather_block(in + from, out + to, true, p.inner - column);
  }
}

// Row i of `in` goes to row places[i] of `out`; nowhere if that is negative. Grid: as above.
template <typename T, bool Long>
kernel void put_rows(device const T* in [[buffer(0)]], device const int* places [[buffer(1)]],
                     device T* out [[buffer(2)]], constant MoveParams& p [[buffer(3)]],
                     uint2 position [[thread_position_in_grid]]) {
  const ulong row = Long ? position.x : position.y;
  const ulong column = Long ? position.y : ulong(position.x) * GATHER_BLOCK;
  if (places[row] < 0) return;
  const ulong to = ulong(places[row]) * p.inner + column, from = row * p.inner + column;
  if (Long) {
    out[to] = in[from];
  } else {
    gather_block(in + from, out + to, true, p.inner - column);
  }
}

template <typename T, typename I>
kernel void reverse_sequence(device const T* in [[buffer(0)]],
                             device const I* lengths [[buffer(1)]], device T* out [[buffer(2)]],
                             constant ReverseParams& p [[buffer(3)]],
                             uint2 position [[thread_position_in_grid]],
                             uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= p.total) return;
  const ulong inner = i % p.inner, second = i / p.inner % p.second;
  const ulong middle = i / p.inner / p.second % p.middle;
  const ulong outer = i / p.inner / p.second / p.middle;  // with the first of the two
  const ulong first = outer % p.first;
  const long at = long(p.swapped != 0 ? first : second);
  const long length = long(lengths[p.swapped != 0 ? second : first]);
  const long size = long(p.swapped != 0 ? p.first : p.second);
  const long from = at < length && length <= size ? length - 1 - at : at;
  const ulong row = p.swapped != 0 ? outer - first + ulong(from) : outer;
  const ulong column = p.swapped != 0 ? second : ulong(from);
  out[i] = in[((row * p.middle + middle) * p.second + column) * p.inner + inner];
}

#define MOVE(bytes, type)                                                           \
  INSTANTIATE_KERNEL("take_rows_" bytes, take_rows, type, false)                    \
  INSTANTIATE_KERNEL("take_rows_long_" bytes, take_rows, type, true)                \
  INSTANTIATE_KERNEL("put_rows_" bytes, put_rows, type, false)                      \
  INSTANTIATE_KERNEL("put_rows_long_" bytes, put_rows, type, true)                  \
  INSTANTIATE_KERNEL("reverse_sequence_" bytes "_int", reverse_sequence, type, int) \
  INSTANTIATE_KERNEL("reverse_sequence_" bytes "_long", reverse_sequence, type, long)
MOVE("1", uchar)
MOVE("2", ushort)
MOVE("4", uint)
MOVE("8", ulong)
MOVE("16", ulong2)

// The gradient of a mirrored edge: added to the elements it mirrors, along one dimension. Grid: inner, rows, outer;
// or rows, outer where inner is 1 (Long). All rows, or the first `before` and the last `after` that mirror
// something.
template <typename T, bool Long>
kernel void fold_edges(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       constant FoldParams& p [[buffer(2)]],
                       uint3 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong inner = Long ? 0 : position.x, outer = Long ? position.y : position.z;
  const ulong step = Long ? 1 : p.inner;
  ulong row = Long ? position.x : position.y;
  if (p.edges_alone != 0) {
    row += row < p.before ? p.edge : p.size - p.edge - p.after - p.before;
  }
  device const T* const line = in + outer * (p.size + p.before + p.after) * step + inner;
  Wide sum = Wide(line[(p.before + row) * step]);
  if (row >= p.edge && row - p.edge < p.before) {
    sum += Wide(line[(p.before - 1 - (row - p.edge)) * step]);
  }
  const ulong back = p.size - 1 - row;
  if (back >= p.edge && back - p.edge < p.after) {
    sum += Wide(line[(p.before + p.size + back - p.edge) * step]);
  }
  out[(outer * p.size + row) * step + inner] = T(sum);
}

// Grid: products.
template <typename T>
kernel void cross_product(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                          device T* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong at = 3 * ulong(i);
  const Wide ax = Wide(a[at]), ay = Wide(a[at + 1]), az = Wide(a[at + 2]);
  const Wide bx = Wide(b[at]), by = Wide(b[at + 1]), bz = Wide(b[at + 2]);
  out[at] = T(ay * bz - az * by);
  out[at + 1] = T(az * bx - ax * bz);
  out[at + 2] = T(ax * by - ay * bx);
}

#define CALCULATE(type)                                                \
  INSTANTIATE_KERNEL("fold_edges_" #type, fold_edges, type, false)     \
  INSTANTIATE_KERNEL("fold_edges_long_" #type, fold_edges, type, true) \
  INSTANTIATE_KERNEL("cross_product_" #type, cross_product, type)
CALCULATE(float)
CALCULATE(half)
IF_BFLOAT(CALCULATE(bfloat))
CALCULATE(uchar)
CALCULATE(ushort)
CALCULATE(uint)
CALCULATE(ulong)
INSTANTIATE_KERNEL("fold_edges_float2", fold_edges, float2, false)
INSTANTIATE_KERNEL("fold_edges_long_float2", fold_edges, float2, true)

// 1 for NaN, 2 for infinity, 4 for the negative one: of a piece each. Grid: pieces.
template <typename T>
kernel void check_numerics(device const T* in [[buffer(0)]], device uint* found [[buffer(1)]],
                           constant ulong& n [[buffer(2)]],
                           uint piece [[thread_position_in_grid]]) {
  const ulong first = ulong(piece) * CHECK_PIECE, last = min(first + CHECK_PIECE, n);
  uint bits = 0;
  for (ulong i = first; i < last; ++i) {
    const float x = float(in[i]);
    bits |= (x != x ? 1u : 0u) | (x == INFINITY ? 2u : 0u) | (x == -INFINITY ? 4u : 0u);
  }
  found[piece] = bits;
}
INSTANTIATE_KERNEL("check_numerics_float", check_numerics, float)
INSTANTIATE_KERNEL("check_numerics_half", check_numerics, half)
IF_BFLOAT(INSTANTIATE_KERNEL("check_numerics_bfloat", check_numerics, bfloat))

// out [rank, n]. Grid: n.
template <typename I>
kernel void unravel_index(device const I* indices [[buffer(0)]], device I* out [[buffer(1)]],
                          constant UnravelParams& p [[buffer(2)]],
                          uint i [[thread_position_in_grid]]) {
  long rest = long(indices[i]);
  for (uint d = p.rank; d-- > 0;) {
    out[d * p.n + i] = I(rest % p.dims[d]);
    rest /= p.dims[d];
  }
}
INSTANTIATE_KERNEL("unravel_index_int", unravel_index, int)
INSTANTIATE_KERNEL("unravel_index_long", unravel_index, long)
