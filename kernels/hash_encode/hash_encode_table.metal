// HashEncodeGrad and HashEncodeJvpGrad: gradients of the table, d<g, y>/dE and d<g, J v>/dE.
//
// Both scatter weight_c * g into the rows of the corners; they differ in the weights (`Tangent`).
// Two ways:
//   add    one thread per (point, level), atomic float32 adds: fastest, last bits differ from run
//          to run.
//   exact  under op determinism, level by level: `list` chains the (point, corner) pairs of every
//          row, in whatever order the threads come, then `sum` walks each row's chain and adds in
//          a way that has no order (kernels/msl/exact_sum.h). Bit-identical for any number of
//          threads, on any schedule.

#include <metal_stdlib>

#include "kernels/hash_encode/hash_encode_params.h"
#include "kernels/hash_encode/hash_grid.h"
#include "kernels/msl/atomics.h"
#include "kernels/msl/exact_sum.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide_access.h"

using namespace metal;

constant uint kEndOfList = 0xffffffffu;

template <int D, bool Tangent>
inline void find_corner_weights(thread const GridCell<D>& at, device const float* tangents,
                                ulong point, thread float* weights) {
  if (Tangent) {
    find_tangent_weights<D>(at, tangents + point * D, weights);
  } else {
    find_weights<D>(at, weights);
  }
}

// The same additions, one row per access; along x the corners' rows are often r and r ^ 1, which
// two features make one access of. Addresses are multiples of 16.
template <typename T, int D, int F>
inline void add_wide(constant HashEncodeLevel& level, thread const uint* rows,
                     thread const float* weights, device const T* g, device atomic_float* table) {
  float values[F];
  load_row<T, F>(g, true, values);
#if defined(__HAVE_ATOMIC_FLOAT_VECTOR__)
  if (F == 2 && ((level.offset | level.size) & 1) == 0) {
    for (int c = 0; c < (1 << D); c += 2) {
      if ((rows[c] ^ 1) != rows[c + 1]) {
        atomic_add_row<F>(table + ulong(rows[c]) * F, true, weights[c], values);
        atomic_add_row<F>(table + ulong(rows[c + 1]) * F, true, weights[c + 1], values);
        continue;
      }
      const bool odd = (rows[c] & 1) != 0;
      const float low = odd ? weights[c + 1] : weights[c];
      const float high = odd ? weights[c] : weights[c + 1];
      atomic_add4(table + ulong(rows[c] & ~1u) * F, low * values[0], low * values[F - 1],
                  high * values[0], high * values[F - 1]);
    }
    return;
  }
#endif
  for (int c = 0; c < (1 << D); ++c) {
    atomic_add_row<F>(table + ulong(rows[c]) * F, true, weights[c], values);
  }
}

// Grid: points x levels. `tangents` is read only where Tangent.
template <typename T, int D, int F, bool Tangent>
[[max_total_threads_per_threadgroup(512)]]
kernel void hash_encode_add(
    device const float* tangents [[buffer(0)]], device const T* d_outputs [[buffer(1)]],
    device const float* inputs [[buffer(2)]], device atomic_float* sums [[buffer(3)]],
    constant HashEncodeParams& params [[buffer(4)]], constant HashEncodeLevel* levels [[buffer(5)]],
    constant uint& n_features [[buffer(6)]], uint2 thread_at [[thread_position_in_grid]],
    uint2 local [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]],
    uint2 size [[dispatch_threads_per_threadgroup]]) {
  const PointAndLevel work = deal_levels<(F == 0 ? 1 : kDealtLevels<T, F>)>(
      thread_at, local, group, size, params.n_points, params.n_levels);
  const ulong point = work.point;
  constant HashEncodeLevel& level = levels[work.level];
  const GridCell<D> at = find_cell<D>(inputs + point * D, level.scale, params.smoothstep != 0);
  uint rows[1 << D];
  float weights[1 << D];
  find_rows<D>(level, at.cell, rows);
  find_corner_weights<D, Tangent>(at, tangents, point, weights);

  const uint width = F == 0 ? n_features : F;
  device const T* g = d_outputs + (point * params.n_levels + work.level) * width;
  device atomic_float* table = sums + ulong(level.offset) * width;
  if (F != 0 && is_wide(d_outputs) && is_wide(sums)) {
    add_wide<T, D, F == 0 ? 1 : F>(level, rows, weights, g, table);
    return;
  }
  for (int c = 0; c < (1 << D); ++c) {
    device atomic_float* row = table + ulong(rows[c]) * width;
    for (uint f = 0; f < width; ++f) atomic_add(row + f, weights[c] * float(g[f]));
  }
}

// float32 sums -> T.  Grid: rows.
template <typename T>
kernel void hash_encode_round(device const float* sums [[buffer(0)]],
                              device T* outputs [[buffer(1)]],
                              constant uint& n_features [[buffer(2)]],
                              uint row [[thread_position_in_grid]]) {
  const ulong first = ulong(row) * n_features;
  for (uint f = 0; f < n_features; ++f) outputs[first + f] = T(sums[first + f]);
}

// Clears the rows outside [used[0], used[1]).  Grid: those rows.
template <typename T>
kernel void hash_encode_zero(device T* outputs [[buffer(0)]],
                             constant uint& n_features [[buffer(1)]],
                             constant uint* used [[buffer(2)]],
                             uint i [[thread_position_in_grid]]) {
  const ulong row = i < used[0] ? i : i - used[0] + used[1];
  for (uint f = 0; f < n_features; ++f) outputs[row * n_features + f] = T(0);
}

// Chains pair = point * 2^D + corner into its row's list.  Grid: points.
template <int D>
kernel void hash_encode_list(device const float* inputs [[buffer(0)]],
                             device atomic_uint* heads [[buffer(1)]],
                             device uint* next [[buffer(2)]],
                             constant HashEncodeParams& params [[buffer(3)]],
                             constant HashEncodeLevel& level [[buffer(4)]],
                             uint point [[thread_position_in_grid]]) {
  const GridCell<D> at =
      find_cell<D>(inputs + ulong(point) * D, level.scale, params.smoothstep != 0);
  uint rows[1 << D];
  find_rows<D>(level, at.cell, rows);
  for (uint c = 0; c < (1u << D); ++c) {
    const uint pair = (point << D) + c;
    next[pair] = atomic_exchange_explicit(heads + rows[c], pair, memory_order_relaxed);
  }
}

// Sums each row's list and empties it for the next level.  Grid: rows of the level. F is a number
// at run time here: chasing the list costs more than the loop.
template <typename T, int D, bool Tangent>
kernel void hash_encode_sum(
    device const float* tangents [[buffer(0)]], device const T* d_outputs [[buffer(1)]],
    device const float* inputs [[buffer(2)]], device uint* heads [[buffer(3)]],
    device const uint* next [[buffer(4)]], device T* outputs [[buffer(5)]],
    constant HashEncodeParams& params [[buffer(6)]], constant HashEncodeLevel& level [[buffer(7)]],
    constant uint& level_number [[buffer(8)]], constant uint& n_features [[buffer(9)]],
    uint row [[thread_position_in_grid]]) {
  const uint head = heads[row];
  heads[row] = kEndOfList;
  ExactSum sums[HASH_ENCODE_MAX_FEATURES];
  for (uint f = 0; f < n_features; ++f) sums[f] = exact_sum_zero();
  for (int pass = 0; pass < 2; ++pass) {
    for (uint pair = head; pair != kEndOfList; pair = next[pair]) {
      const ulong point = pair >> D;
      const GridCell<D> at = find_cell<D>(inputs + point * D, level.scale, params.smoothstep != 0);
      float weights[1 << D];
      find_corner_weights<D, Tangent>(at, tangents, point, weights);
      const float weight = weights[pair & ((1u << D) - 1)];
      device const T* g = d_outputs + (point * params.n_levels + level_number) * n_features;
      for (uint f = 0; f < n_features; ++f) {
        const float term = weight * float(g[f]);
        if (pass == 0) {
          exact_sum_meet(sums[f], term);
        } else {
          exact_sum_add(sums[f], term);
        }
      }
    }
    if (pass == 0) {
      for (uint f = 0; f < n_features; ++f) exact_sum_begin_adding(sums[f]);
    }
  }
  device T* out = outputs + (ulong(level.offset) + row) * n_features;
  for (uint f = 0; f < n_features; ++f) out[f] = T(exact_sum_result(sums[f]));
}

#define INSTANTIATE_ADD(T, D, F) \
  INSTANTIATE_KERNEL("hash_encode_grad_add_" #T "_" #D "_" #F, hash_encode_add, T, D, F, false)
#define INSTANTIATE_DIMS(T, D)                                                              \
  INSTANTIATE_ADD(T, D, 1)                                                                  \
  INSTANTIATE_ADD(T, D, 2)                                                                  \
  INSTANTIATE_ADD(T, D, 4)                                                                  \
  INSTANTIATE_ADD(T, D, 8)                                                                  \
  INSTANTIATE_KERNEL("hash_encode_jvp_grad_add_" #T "_" #D, hash_encode_add, T, D, 0, true) \
  INSTANTIATE_KERNEL("hash_encode_grad_sum_" #T "_" #D, hash_encode_sum, T, D, false)       \
  INSTANTIATE_KERNEL("hash_encode_jvp_grad_sum_" #T "_" #D, hash_encode_sum, T, D, true)
#define INSTANTIATE_TYPE(T) \
  INSTANTIATE_DIMS(T, 2)    \
  INSTANTIATE_DIMS(T, 3)    \
  INSTANTIATE_DIMS(T, 4)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
INSTANTIATE_KERNEL("hash_encode_round_half", hash_encode_round, half)
IF_BFLOAT(INSTANTIATE_KERNEL("hash_encode_round_bfloat", hash_encode_round, bfloat))
INSTANTIATE_KERNEL("hash_encode_zero_float", hash_encode_zero, float)
INSTANTIATE_KERNEL("hash_encode_zero_half", hash_encode_zero, half)
IF_BFLOAT(INSTANTIATE_KERNEL("hash_encode_zero_bfloat", hash_encode_zero, bfloat))
INSTANTIATE_KERNEL("hash_encode_list_2", hash_encode_list, 2)
INSTANTIATE_KERNEL("hash_encode_list_3", hash_encode_list, 3)
INSTANTIATE_KERNEL("hash_encode_list_4", hash_encode_list, 4)
