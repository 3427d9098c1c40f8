// Sums and largest elements of segments, whose ids are in order: where one begins and ends is searched for. Sums
// are taken in the rows' order, so results are the same from run to run.

#include <metal_stdlib>

#include "device/kernels/segment_params.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide.h"

using namespace metal;

struct Sum {
  template <typename T>
  static T join(T a, T b) {
    return T(a + b);
  }
};
// NaN stays.
struct Max {
  template <typename T>
  static T join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct Min {
  template <typename T>
  static T join(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

// How many ids are less than `segment`.
template <typename S>
inline ulong segment_begin(device const S* ids, ulong n, long segment) {
  ulong first = 0, last = n;
  while (first < last) {
    const ulong middle = first + (last - first) / 2;
    if (long(ids[middle]) < segment) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

inline float segment_scale(float power, ulong count) {
  return power == 0.0f || count < 2 ? 1.0f
         : power == 1.0f            ? 1.0f / float(count)
                                    : 1.0f / sqrt(float(count));
}

// Empty segments are zero. Grid: inner, segments.
template <typename Op, typename T, typename S>
kernel void segment(device const T* data [[buffer(0)]], device const S* ids [[buffer(1)]],
                    device T* out [[buffer(2)]], constant SegmentParams& p [[buffer(3)]],
                    uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong first = segment_begin(ids, p.n, long(position.y));
  const ulong last = segment_begin(ids, p.n, long(position.y) + 1);
  Wide total = first < last ? Wide(data[first * p.inner + position.x]) : Wide(0);
  for (ulong i = first + 1; i < last; ++i) {
    total = Op::join(total, Wide(data[i * p.inner + position.x]));
  }
  out[ulong(position.y) * p.inner + position.x] = T(total);
}

// Rows that `indices` name; one that is outside adds nothing. Grid: inner, segments.
template <typename T, typename I, typename S>
kernel void sparse_segment(device const T* data [[buffer(0)]],
                           device const I* indices [[buffer(1)]], device const S* ids [[buffer(2)]],
                           device T* out [[buffer(3)]], constant SegmentParams& p [[buffer(4)]],
                           uint2 position [[thread_position_in_grid]]) {
  const ulong first = segment_begin(ids, p.n, long(position.y));
  const ulong last = segment_begin(ids, p.n, long(position.y) + 1);
  float total = 0.0f;
  for (ulong i = first; i < last; ++i) {
    const long row = long(indices[i]);
    if (row >= 0 && row < long(p.rows)) {
      total += float(data[ulong(row) * p.inner + position.x]);
    }
  }
  out[ulong(position.y) * p.inner + position.x] = T(total * segment_scale(p.power, last - first));
}

// What the rows of each segment get of its gradient. Grid: inner, n.
template <typename T, typename S>
kernel void sparse_segment_spread(device const T* grad [[buffer(0)]],
                                  device const S* ids [[buffer(1)]], device T* out [[buffer(2)]],
                                  constant SegmentParams& p [[buffer(3)]],
                                  uint2 position [[thread_position_in_grid]]) {
  const long id = long(ids[position.y]);
  float scale = 1.0f;
  if (p.power != 0.0f) {
    scale = segment_scale(p.power, segment_begin(ids, p.n, id + 1) - segment_begin(ids, p.n, id));
  }
  const bool inside = id >= 0 && id < long(p.rows);
  const float value = float(grad[(inside ? ulong(id) : 0) * p.inner + position.x]);
  out[ulong(position.y) * p.inner + position.x] = T(inside ? value * scale : 0.0f);
}

#define SEGMENT_OP(name, op, type)                                             \
  INSTANTIATE_KERNEL("segment_" name "_" #type "_int", segment, op, type, int) \
  INSTANTIATE_KERNEL("segment_" name "_" #type "_long", segment, op, type, long)
#define SEGMENT(type)          \
  SEGMENT_OP("max", Max, type) \
  SEGMENT_OP("min", Min, type)
SEGMENT(float)
SEGMENT(half)
SEGMENT(bfloat)
SEGMENT(char)
SEGMENT(short)
SEGMENT(int)
SEGMENT(long)
SEGMENT(uchar)
SEGMENT(ushort)
SEGMENT(uint)
SEGMENT(ulong)

#define SPARSE_IDS(type, index)                                                                   \
  INSTANTIATE_KERNEL("sparse_segment_" #type "_" #index "_int", sparse_segment, type, index, int) \
  INSTANTIATE_KERNEL("sparse_segment_" #type "_" #index "_long", sparse_segment, type, index, long)
#define SPARSE(type)                                                                          \
  SPARSE_IDS(type, int)                                                                       \
  SPARSE_IDS(type, long)                                                                      \
  INSTANTIATE_KERNEL("sparse_segment_spread_" #type "_int", sparse_segment_spread, type, int) \
  INSTANTIATE_KERNEL("sparse_segment_spread_" #type "_long", sparse_segment_spread, type, long)
SPARSE(float)
SPARSE(half)
SPARSE(bfloat)
