// Elements that follow from where they are: cumulative sums and products, bands of matrices, one-hot rows,
// ranges.

#include "device/kernels/join.metal.h"
#include "device/kernels/pattern_params.h"
#include "device/kernels/strided.metal.h"
#include "kernels/msl/exp_log.h"

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

// Grid: inner, outer; one thread per line.
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
  IF_BFLOAT(SCAN(name, op, bfloat))
#define SCAN_SIGNLESS(name, op) \
  SCAN(name, op, uchar)         \
  SCAN(name, op, ushort)        \
  SCAN(name, op, uint)          \
  SCAN(name, op, ulong)
SCAN_FLOATS("sum", Sum)
SCAN_SIGNLESS("sum", Sum)
SCAN_FLOATS("prod", Prod)
SCAN_SIGNLESS("prod", Prod)
SCAN("sum", Sum, float2)  // complex
SCAN("prod", ComplexProd, float2)
SCAN_FLOATS("log_sum_exp", LogSumExp)

// Grid: columns, rows, matrices.
template <typename T>
kernel void band_part(device const T* in [[buffer(0)]], device T* out [[buffer(1)]],
                      constant BandParams& p [[buffer(2)]],
                      uint3 position [[thread_position_in_grid]],
                      uint3 threads [[threads_per_grid]]) {
  const long row = long(position.y), column = long(position.x);
  const ulong i =
      (ulong(position.z) * threads.y + ulong(position.y)) * threads.x + ulong(position.x);
  const bool kept =
      (p.lower < 0 || row - column <= p.lower) && (p.upper < 0 || column - row <= p.upper);
  const T value = in[i];
  out[i] = kept ? value : T(0);
}

// out [outer, depth, inner], where all is off; grid: inner, outer, and outer alone where inner is 1.
template <typename T, typename I>
kernel void one_hot(device const I* indices [[buffer(0)]], device const T* on [[buffer(1)]],
                    device T* out [[buffer(2)]], constant uint& depth [[buffer(3)]],
                    constant ulong& inner [[buffer(4)]],
                    uint2 position [[thread_position_in_grid]]) {
  const ulong line = inner == 1 ? ulong(position.x) : ulong(position.y);
  const ulong column = inner == 1 ? 0 : ulong(position.x);
  const long index = long(indices[line * inner + column]);
  if (index < 0 || index >= long(depth)) return;
  out[(line * depth + ulong(index)) * inner + column] = on[0];
}

#define ONE_HOT(bytes, type, index) \
  INSTANTIATE_KERNEL("one_hot_" bytes "_" #index, one_hot, type, index)
#define MOVE(bytes, type)                                 \
  INSTANTIATE_KERNEL("band_part_" bytes, band_part, type) \
  ONE_HOT(bytes, type, uchar)                             \
  ONE_HOT(bytes, type, char)                              \
  ONE_HOT(bytes, type, int)                               \
  ONE_HOT(bytes, type, long)
MOVE("1", uchar)
MOVE("2", ushort)
MOVE("4", uint)
MOVE("8", ulong)
MOVE("16", ulong2)

// first + i step, added up as TensorFlow's CPU does not: with one rounding each.
template <typename T>
kernel void range(device T* out [[buffer(0)]], constant float& first [[buffer(1)]],
                  constant float& step [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = T(fma(float(i), step, first));
}
INSTANTIATE_KERNEL("range_float", range, float)
INSTANTIATE_KERNEL("range_half", range, half)
IF_BFLOAT(INSTANTIATE_KERNEL("range_bfloat", range, bfloat))
kernel void range_long(device long* out [[buffer(0)]], constant long& first [[buffer(1)]],
                       constant long& step [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = first + long(i) * step;
}
