// Several neighbouring values in one access, for shaders that are bound by the number of accesses.
//
// A GPU's memory works in sectors of 32 bytes: a row of features read value by value, or one value
// of a sector written by each of four passes, costs as much as the whole. On a CPU the compiler
// vectorises over threads instead, so these are loops there.

#ifndef METAL_OPS_KERNELS_MSL_WIDE_ACCESS_H_
#define METAL_OPS_KERNELS_MSL_WIDE_ACCESS_H_

#include <metal_stdlib>

#include "kernels/msl/atomics.h"

// Whether rows at this address may be read in the widest way.
template <typename T>
inline bool is_wide(device const T* rows) {
#if defined(__METAL_CPU__)
  return false;
#else
  return (reinterpret_cast<ulong>(rows) & 15) == 0;
#endif
}

// F neighbours as float32. `wide`: the address is a multiple of their size (or of 16 bytes).
template <typename T, int F>
inline void load_row(device const T* from, bool wide, thread float* to) {
  if (wide && F % 4 == 0) {
    for (int f = 0; f < F; f += 4) {
      const metal::vec<T, 4> v = ((device const metal::vec<T, 4>*)from)[f / 4];
      to[f] = float(v.x);
      to[f + 1] = float(v.y);
      to[f + 2] = float(v.z);
      to[f + 3] = float(v.w);
    }
  } else if (wide && F == 2) {
    const metal::vec<T, 2> v = *(device const metal::vec<T, 2>*)from;
    to[0] = float(v.x);
    to[1] = float(v.y);
  } else {
    for (int f = 0; f < F; ++f) to[f] = float(from[f]);
  }
}

template <typename T, int F>
inline void store_row(thread const float* from, bool wide, device T* to) {
  if (wide && F % 4 == 0) {
    for (int f = 0; f < F; f += 4) {
      ((device metal::vec<T, 4>*)to)[f / 4] =
          metal::vec<T, 4>(T(from[f]), T(from[f + 1]), T(from[f + 2]), T(from[f + 3]));
    }
  } else if (wide && F == 2) {
    *(device metal::vec<T, 2>*)to = metal::vec<T, 2>(T(from[0]), T(from[1]));
  } else {
    for (int f = 0; f < F; ++f) to[f] = T(from[f]);
  }
}

// Rows r and r ^ 1 of F = 1 or 2 features, in one access: `low` is the even one.
template <typename T, int F>
inline void load_row_pair(device const T* table, uint row, thread float* low, thread float* high) {
  if (F == 2) {
    const metal::vec<T, 4> v = ((device const metal::vec<T, 4>*)table)[row >> 1];
    low[0] = float(v.x);
    low[F - 1] = float(v.y);
    high[0] = float(v.z);
    high[F - 1] = float(v.w);
  } else {
    const metal::vec<T, 2> v = ((device const metal::vec<T, 2>*)table)[row >> 1];
    low[0] = float(v.x);
    high[0] = float(v.y);
  }
}

// sums[f] += weight * values[f], in no order.
template <int F>
inline void atomic_add_row(device metal::atomic_float* sums, bool wide, float weight,
                           thread const float* values) {
#if defined(__HAVE_ATOMIC_FLOAT_VECTOR__)
  if (wide && F % 4 == 0) {
    for (int f = 0; f < F; f += 4) {
      atomic_add4(sums + f, weight * values[f], weight * values[f + 1], weight * values[f + 2],
                  weight * values[f + 3]);
    }
    return;
  }
  if (wide && F == 2) return atomic_add2(sums, weight * values[0], weight * values[F - 1]);
#endif
  for (int f = 0; f < F; ++f) atomic_add(sums + f, weight * values[f]);
}

// Where a thread of a grid of points x levels works.
//
// Levels are passes over the points, so that the part of a table that a pass reads stays in the
// cache. The threadgroups of `Lanes` passes are dealt out anew: neighbouring threads take
// neighbouring levels of one point, whose features lie side by side in memory. The same work is
// done by other threads; at the edges of the grid, and on a CPU, everything stays as it is.
struct PointAndLevel {
  uint point, level;
};
template <int Lanes>
inline PointAndLevel deal_levels(uint2 thread_at, uint2 local, uint2 group, uint2 size,
                                 uint n_points, uint n_levels) {
  PointAndLevel at;
  at.point = thread_at.x;
  at.level = thread_at.y;
#if !defined(__METAL_CPU__)
  const uint first = group.x * size.x, pass = group.y % Lanes, base = group.y - pass;
  if (Lanes > 1 && size.y == 1 && size.x % Lanes == 0 && n_points - first >= size.x &&
      n_levels - base >= Lanes) {
    at.point = first + pass * (size.x / Lanes) + local.x / Lanes;
    at.level = base + local.x % Lanes;
  }
#endif
  return at;
}
// As many levels as fill a sector, 4 at most: their tables share the cache.
template <typename T, int F>
constexpr constant int kDealtLevels = F * int(sizeof(T)) >= 32   ? 1
                                      : F * int(sizeof(T)) >= 16 ? 2
                                                                 : 4;

#endif  // METAL_OPS_KERNELS_MSL_WIDE_ACCESS_H_
