// Sums, means, products and largest elements of segments, whose ids are in order: where one begins and ends is searched
// for. Sums are taken in the rows' order, so results are the same from run to run.

#include <metal_stdlib>

#include "device/kernels/complex.metal.h"
#include "device/kernels/scatter.metal.h"
#include "device/kernels/segment_params.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

using namespace metal;

template <typename T>
inline T times(T a, T b) {
  return T(a * b);
}

// The value of a segment without rows, the function that joins rows, and the one that takes their
// number.
struct Sum {
  template <typename T>
  static T none() {
    return T(0);
  }
  template <typename T>
  static T join(T a, T b) {
    return T(a + b);
  }
  template <typename T>
  static T end(T sum, ulong) {
    return sum;
  }
};
struct Mean : Sum {
  static float end(float sum, ulong count) { return count < 2 ? sum : sum / float(count); }
  static float2 end(float2 sum, ulong count) { return count < 2 ? sum : sum / float(count); }
  template <typename T>
  static T end(T sum, ulong count) {
    return count < 2 ? sum : T(sum / T(count));
  }
};
struct Prod : Sum {
  static float2 one(float2) { return float2(1.0f, 0.0f); }
  template <typename T>
  static T one(T) {
    return T(1);
  }
  template <typename T>
  static T none() {
    return one(T(0));
  }
  template <typename T>
  static T join(T a, T b) {
    return times(a, b);
  }
};
// NaN stays.
struct Max : Sum {
  template <typename T>
  static T join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct Min : Sum {
  template <typename T>
  static T join(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

// Where each segment begins among the ids, and the last one ends. Grid: segments and one more.
template <typename S>
kernel void segment_begins(device const S* ids [[buffer(0)]], device ulong* begins [[buffer(1)]],
                           constant ulong& n [[buffer(2)]],
                           uint segment [[thread_position_in_grid]]) {
  ulong first = 0, last = n;
  while (first < last) {
    const ulong middle = first + (last - first) / 2;
    if (long(ids[middle]) < long(segment)) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  begins[segment] = first;
}
INSTANTIATE_KERNEL("segment_begins_int", segment_begins, int)
INSTANTIATE_KERNEL("segment_begins_long", segment_begins, long)

inline float segment_scale(float power, ulong count) {
  return power == 0.0f || count < 2 ? 1.0f
         : power == 1.0f            ? 1.0f / float(count)
                                    : 1.0f / sqrt(float(count));
}

// A row joined to `width` sums.
template <typename Op, typename T>
inline void join_row(thread typename wide<T>::type* sums, device const T* row, uint width) {
  using Wide = typename wide<T>::type;
  if (width == SEGMENT_BLOCK) {
    for (uint k = 0; k < SEGMENT_BLOCK; ++k) sums[k] = Op::join(sums[k], Wide(row[k]));
  } else {
    for (uint k = 0; k < width; ++k) sums[k] = Op::join(sums[k], Wide(row[k]));
  }
}

// Grid: blocks of inner, segments.
template <typename Op, typename T>
kernel void segment(device const T* data [[buffer(0)]], device const ulong* begins [[buffer(1)]],
                    device T* out [[buffer(2)]], constant SegmentParams& p [[buffer(3)]],
                    uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong column = ulong(position.x) * SEGMENT_BLOCK;
  const uint width = uint(min(ulong(SEGMENT_BLOCK), p.inner - column));
  const ulong first = begins[position.y], last = begins[position.y + 1];
  Wide sums[SEGMENT_BLOCK];
  for (uint k = 0; k < width; ++k) {
    sums[k] = first < last ? Wide(data[first * p.inner + column + k]) : Op::template none<Wide>();
  }
  for (ulong i = first + 1; i < last; ++i) {
    join_row<Op, T>(sums, data + i * p.inner + column, width);
  }
  for (uint k = 0; k < width; ++k) {
    out[position.y * p.inner + column + k] = T(Op::end(sums[k], last - first));
  }
}

inline float scaled(float sum, float scale) { return sum * scale; }
// Integers have sums alone.
template <typename T>
inline T scaled(T sum, float) {
  return sum;
}

// Rows that `indices` name; one that is outside adds nothing. Grid: blocks of inner, segments.
template <typename T, typename I>
kernel void sparse_segment(device const T* data [[buffer(0)]],
                           device const I* indices [[buffer(1)]],
                           device const ulong* begins [[buffer(2)]], device T* out [[buffer(3)]],
                           constant SegmentParams& p [[buffer(4)]],
                           uint2 position [[thread_position_in_grid]]) {
  const ulong column = ulong(position.x) * SEGMENT_BLOCK;
  const uint width = uint(min(ulong(SEGMENT_BLOCK), p.inner - column));
  const ulong first = begins[position.y], last = begins[position.y + 1];
  typename wide<T>::type sums[SEGMENT_BLOCK];
  for (uint k = 0; k < SEGMENT_BLOCK; ++k) sums[k] = 0;
  for (ulong i = first; i < last; ++i) {
    const long row = long(indices[i]);
    if (row < 0 || row >= long(p.rows)) continue;
    join_row<Sum, T>(sums, data + ulong(row) * p.inner + column, width);
  }
  const float scale = segment_scale(p.power, last - first);
  for (uint k = 0; k < width; ++k) {
    out[position.y * p.inner + column + k] = T(scaled(sums[k], scale));
  }
}

// Rows that `indices` name get the gradients of their segments, in the indices' order; all others are zeros. Grid: parts
// of a row's elements, ranges of rows.
template <typename T, typename I, typename S>
kernel void sparse_segment_grad(
    device const T* grad [[buffer(0)]], device const I* indices [[buffer(1)]],
    device const S* ids [[buffer(2)]], device const ulong* begins [[buffer(3)]],
    device T* out [[buffer(4)]], constant ScatterParams& rows [[buffer(5)]],
    constant SegmentParams& p [[buffer(6)]], uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong first = ulong(position.x) * rows.part, last = min(first + rows.part, p.inner);
  const ulong end = min((ulong(position.y) + 1) * rows.range, rows.rows);
  for (ulong row = ulong(position.y) * rows.range; row < end; ++row) {
    for (ulong k = first; k < last; ++k) out[row * p.inner + k] = T(0);
  }
  for (ulong i = 0; i < rows.updates; ++i) {
    const ScatterPart part = scatter_part(rows, indices, i, position);
    if (part.elements == 0) continue;
    const long id = long(ids[i]);
    if (id < 0 || id >= long(p.rows)) continue;
    const float scale = segment_scale(p.power, begins[id + 1] - begins[id]);
    device const T* const from = grad + ulong(id) * p.inner + first;
    device T* const to = out + part.at;
    ulong k = 0;
    for (; k + SEGMENT_BLOCK <= part.elements; k += SEGMENT_BLOCK) {
      T values[SEGMENT_BLOCK];
      for (uint j = 0; j < SEGMENT_BLOCK; ++j) {
        values[j] = T(Wide(to[k + j]) + Wide(T(float(from[k + j]) * scale)));
      }
      for (uint j = 0; j < SEGMENT_BLOCK; ++j) to[k + j] = values[j];
    }
    for (; k < part.elements; ++k) to[k] = T(Wide(to[k]) + Wide(T(float(from[k]) * scale)));
  }
}

#define SEGMENT_OP(name, op, type) INSTANTIATE_KERNEL("segment_" name "_" #type, segment, op, type)
#define SEGMENT(type)            \
  SEGMENT_OP("mean", Mean, type) \
  SEGMENT_OP("max", Max, type)   \
  SEGMENT_OP("min", Min, type)
SEGMENT(float)
SEGMENT(half)
IF_BFLOAT(SEGMENT(bfloat))
SEGMENT(char)
SEGMENT(short)
SEGMENT(int)
SEGMENT(long)
SEGMENT(uchar)
SEGMENT(ushort)
SEGMENT(uint)
SEGMENT(ulong)
SEGMENT_OP("mean", Mean, float2)
// The bits of whole numbers are the same with a sign and without.
#define SEGMENT_SIGNLESS(type) \
  SEGMENT_OP("sum", Sum, type) \
  SEGMENT_OP("prod", Prod, type)
SEGMENT_SIGNLESS(float)
SEGMENT_SIGNLESS(half)
IF_BFLOAT(SEGMENT_SIGNLESS(bfloat))
SEGMENT_SIGNLESS(float2)
SEGMENT_SIGNLESS(uchar)
SEGMENT_SIGNLESS(ushort)
SEGMENT_SIGNLESS(uint)
SEGMENT_SIGNLESS(ulong)

#define SPARSE_GRAD(type, index)                                                                 \
  INSTANTIATE_KERNEL("sparse_segment_grad_" #type "_" #index "_int", sparse_segment_grad, type,  \
                     index, int)                                                                 \
  INSTANTIATE_KERNEL("sparse_segment_grad_" #type "_" #index "_long", sparse_segment_grad, type, \
                     index, long)
#define SPARSE(type)                                                              \
  INSTANTIATE_KERNEL("sparse_segment_" #type "_int", sparse_segment, type, int)   \
  INSTANTIATE_KERNEL("sparse_segment_" #type "_long", sparse_segment, type, long) \
  SPARSE_GRAD(type, int)                                                          \
  SPARSE_GRAD(type, long)
SPARSE(float)
SPARSE(half)
IF_BFLOAT(SPARSE(bfloat))
#define SPARSE_SUM(type)                                                        \
  INSTANTIATE_KERNEL("sparse_segment_" #type "_int", sparse_segment, type, int) \
  INSTANTIATE_KERNEL("sparse_segment_" #type "_long", sparse_segment, type, long)
SPARSE_SUM(uchar)
SPARSE_SUM(ushort)
SPARSE_SUM(uint)
SPARSE_SUM(ulong)
