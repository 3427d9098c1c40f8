// Elements that follow from where they are: cumulative sums and products, bands of matrices, one-hot rows,
// ranges.

#include "device/kernels/join.metal.h"
#include "device/kernels/pattern_params.h"
#include "device/kernels/strided.metal.h"
#include "kernels/msl/exp_log.h"
#include "kernels/msl/grid.h"

using namespace metal;

// log(exp(a) + exp(b)) without overflow.
struct LogSumExp {
  template <typename T>
  static T none() {
    return T(-INFINITY);
  }
  static float join(float a, float b) {
    const float large = max(a, b), small = min(a, b);
    if (isinf(large) || a != a || b != b) return a != a || b != b ? a + b : large;
    return large + precise_log1p(exp(small - large));
  }
};

// Grid: inner, outer; one thread a line.
template <typename Op, typename T>
kernel void scan(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                 constant ScanParams& p [[buffer(2)]], uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong first = ulong(position.y) * p.count * p.inner + position.x;
  Wide total = Op::template none<Wide>();
  for (ulong i = 0; i < p.count; ++i) {
    const ulong at = first + (p.reverse != 0 ? p.count - 1 - i : i) * p.inner;
    const Wide value = Wide(in[at]);
    if (p.exclusive != 0) out[at] = T(total);
    total = Op::join(total, value);
    if (p.exclusive == 0) out[at] = T(total);
  }
}

#define SCAN(name, op, type) INSTANTIATE_KERNEL("scan_" name "_" #type, scan, op, type)
#define SCAN_FLOATS(name, op) \
  SCAN(name, op, float)       \
  SCAN(name, op, half)        \
  SCAN(name, op, bfloat)
#define SCAN_SIGNLESS(name, op) \
  SCAN(name, op, uchar)         \
  SCAN(name, op, ushort)        \
  SCAN(name, op, uint)          \
  SCAN(name, op, ulong)
SCAN_FLOATS("sum", Sum)
SCAN_SIGNLESS("sum", Sum)
SCAN_FLOATS("prod", Prod)
SCAN_SIGNLESS("prod", Prod)
SCAN_FLOATS("log_sum_exp", LogSumExp)

// Grid of the rest: Flat, the elements of the result.
template <typename T>
kernel void band_part(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                      constant BandParams& p [[buffer(2)]],
                      uint2 position [[thread_position_in_grid]],
                      uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= p.total) return;
  const ulong line = i / ulong(p.columns);
  const long column = long(i - line * ulong(p.columns)), row = long(line % ulong(p.rows));
  const bool kept =
      (p.lower < 0 || row - column <= p.lower) && (p.upper < 0 || column - row <= p.upper);
  out[i] = kept ? in[i] : T(0);
}

template <typename T, typename I>
kernel void one_hot(device const I* indices [[buffer(0)]], device const T* on [[buffer(1)]],
                    device const T* off [[buffer(2)]], device T* out [[buffer(3)]],
                    constant OneHotParams& p [[buffer(4)]],
                    uint2 position [[thread_position_in_grid]],
                    uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= p.total) return;
  const ulong line = i / p.inner, outer = line / p.depth;
  const long index = long(indices[outer * p.inner + (i - line * p.inner)]);
  out[i] = index == long(line - outer * p.depth) ? on[0] : off[0];
}

#define MOVE(bytes, type)                                             \
  INSTANTIATE_KERNEL("band_part_" bytes, band_part, type)             \
  INSTANTIATE_KERNEL("one_hot_" bytes "_uchar", one_hot, type, uchar) \
  INSTANTIATE_KERNEL("one_hot_" bytes "_char", one_hot, type, char)   \
  INSTANTIATE_KERNEL("one_hot_" bytes "_int", one_hot, type, int)     \
  INSTANTIATE_KERNEL("one_hot_" bytes "_long", one_hot, type, long)
MOVE("1", uchar)
MOVE("2", ushort)
MOVE("4", uint)
MOVE("8", ulong)
MOVE("16", ulong2)

// first + i step, added up as TensorFlow's CPU does not: with one rounding each.
kernel void range_float(device float* out [[buffer(0)]], constant float& first [[buffer(1)]],
                        constant float& step [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = fma(float(i), step, first);
}
kernel void range_long(device long* out [[buffer(0)]], constant long& first [[buffer(1)]],
                       constant long& step [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = first + long(i) * step;
}
