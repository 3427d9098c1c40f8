// The shader of MetalRopeTables: a thread turns one pair.

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/rope_tables/rope_tables_params.h"

using namespace metal;

inline ulong row_of(constant long* strides, ulong outer, ulong middle, ulong inner) {
  return outer * ulong(strides[0]) + middle * ulong(strides[1]) + inner * ulong(strides[2]);
}

// Grid: pairs, inner, outer x middle.
template <typename T, bool kNeighbours>
[[kernel]] void rope_tables(device const T* x [[buffer(0)]], device const T* cosines [[buffer(1)]],
                            device const T* sines [[buffer(2)]], device T* y [[buffer(3)]],
                            constant RopeTablesParams& params [[buffer(4)]],
                            uint3 position [[thread_position_in_grid]]) {
  const ulong middle = position.z % uint(params.middle), outer = position.z / uint(params.middle);
  const ulong pairs = ulong(params.pairs), i = position.x, inner = position.y;
  const ulong first = kNeighbours ? 2 * i : i, second = kNeighbours ? first + 1 : i + pairs;
  const ulong from = row_of(params.x, outer, middle, inner);
  const ulong by_cosines = row_of(params.cosines, outer, middle, inner);
  const ulong by_sines = row_of(params.sines, outer, middle, inner);
  const ulong to = (ulong(position.z) * ulong(params.inner) + inner) * 2 * pairs;
  const float a = float(x[from + first]), b = float(x[from + second]);
  // Backward each element goes where it came from, by the sine of where it is.
  const bool backward = params.backward != 0;
  const float sine = float(sines[by_sines + (backward ? second : first)]);
  const float other = float(sines[by_sines + (backward ? first : second)]);
  const float turn = backward ? -1.0f : 1.0f;
  y[to + first] = T(a * float(cosines[by_cosines + first]) - b * (turn * sine));
  y[to + second] = T(b * float(cosines[by_cosines + second]) + a * (turn * other));
}

#define INSTANTIATE(T)                                                \
  INSTANTIATE_KERNEL("rope_tables_halves_" #T, rope_tables, T, false) \
  INSTANTIATE_KERNEL("rope_tables_neighbours_" #T, rope_tables, T, true)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
