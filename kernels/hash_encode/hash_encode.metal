// HashEncode and HashEncodeJvp: encodings. Gradients of points are in hash_encode_points.metal,
// those of the table in hash_encode_table.metal.
//
// In all three T is the dtype of the table, D the number of dimensions, F of features: known at
// compile time, so that corners and features are unrolled. F = 0 leaves the features to run time,
// for the second-order ops, which would not pay for four times as many kernels. All sums are
// float32. Offsets into tensors are 64 bits.

#include <metal_stdlib>

#include "kernels/hash_encode/hash_encode_params.h"
#include "kernels/hash_encode/hash_grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide_access.h"

using namespace metal;

// outputs[n, l F + f] = sum_c weight_c table[row_c, f].
template <typename T, int D, int F>
inline void encode(constant HashEncodeLevel& level, thread const uint* rows,
                   thread const float* weights, uint n_features, device const T* embeddings,
                   device T* out) {
  const uint width = F == 0 ? n_features : F;
  device const T* table = embeddings + ulong(level.offset) * width;
  float sums[F == 0 ? HASH_ENCODE_MAX_FEATURES : F];
  for (uint f = 0; f < width; ++f) sums[f] = 0.0f;
  for (int c = 0; c < (1 << D); ++c) {
    device const T* row = table + ulong(rows[c]) * width;
    for (uint f = 0; f < width; ++f) sums[f] += weights[c] * float(row[f]);
  }
  for (uint f = 0; f < width; ++f) out[f] = T(sums[f]);
}

// The same sum, with the rows in accesses as wide as they are; along x the corners' rows are often
// r and r ^ 1, which one access brings. The table's address is a multiple of 16.
template <typename T, int D, int F>
inline void encode_wide(constant HashEncodeLevel& level, thread const uint* rows,
                        thread const float* weights, device const T* embeddings, device T* out) {
  device const T* table = embeddings + ulong(level.offset) * F;
  float values[1 << D][F];
  if (F <= 2 && ((level.offset | level.size) & 1) == 0) {
    // First all pairs, then the rest: an access waits for no other.
    float low[1 << (D - 1)][F], high[1 << (D - 1)][F];
    for (int c = 0; c < (1 << D); c += 2) {
      load_row_pair<T, F>(table, rows[c], low[c / 2], high[c / 2]);
    }
    for (int c = 0; c < (1 << D); c += 2) {
      const bool odd = (rows[c] & 1) != 0;
      if ((rows[c] ^ 1) != rows[c + 1]) {
        load_row<T, F>(table + ulong(rows[c + 1]) * F, true, values[c + 1]);
      } else {
        for (int f = 0; f < F; ++f) values[c + 1][f] = odd ? low[c / 2][f] : high[c / 2][f];
      }
    }
    for (int c = 0; c < (1 << D); c += 2) {
      const bool odd = (rows[c] & 1) != 0;
      for (int f = 0; f < F; ++f) values[c][f] = odd ? high[c / 2][f] : low[c / 2][f];
    }
  } else {
    for (int c = 0; c < (1 << D); ++c) {
      load_row<T, F>(table + ulong(rows[c]) * F, true, values[c]);
    }
  }
  float sums[F];
  for (int f = 0; f < F; ++f) sums[f] = 0.0f;
  for (int c = 0; c < (1 << D); ++c) {
    for (int f = 0; f < F; ++f) sums[f] += weights[c] * values[c][f];
  }
  store_row<T, F>(sums, true, out);
}

// Grid: points x levels.
template <typename T, int D, int F>
[[max_total_threads_per_threadgroup(512)]]
kernel void hash_encode(device const float* inputs [[buffer(0)]],
                        device const T* embeddings [[buffer(1)]], device T* outputs [[buffer(2)]],
                        constant HashEncodeParams& params [[buffer(3)]],
                        constant HashEncodeLevel* levels [[buffer(4)]],
                        uint2 thread_at [[thread_position_in_grid]],
                        uint2 local [[thread_position_in_threadgroup]],
                        uint2 group [[threadgroup_position_in_grid]],
                        uint2 size [[dispatch_threads_per_threadgroup]]) {
  const PointAndLevel work = deal_levels<kDealtLevels<T, F>>(thread_at, local, group, size,
                                                             params.n_points, params.n_levels);
  const ulong point = work.point;
  constant HashEncodeLevel& level = levels[work.level];
  const GridCell<D> at = find_cell<D>(inputs + point * D, level.scale, params.smoothstep != 0);
  uint rows[1 << D];
  float weights[1 << D];
  find_rows<D>(level, at.cell, rows);
  find_weights<D>(at, weights);
  device T* out = outputs + (point * params.n_levels + work.level) * F;
  if (is_wide(embeddings) && is_wide(outputs)) {
    encode_wide<T, D, F>(level, rows, weights, embeddings, out);
  } else {
    encode<T, D, F>(level, rows, weights, F, embeddings, out);
  }
}

// outputs = sum_d v_d d encoding / d x_d.  Grid: points x levels.
template <typename T, int D>
kernel void hash_encode_jvp(
    device const float* tangents [[buffer(0)]], device const float* inputs [[buffer(1)]],
    device const T* embeddings [[buffer(2)]], device T* outputs [[buffer(3)]],
    constant HashEncodeParams& params [[buffer(4)]], constant HashEncodeLevel* levels [[buffer(5)]],
    constant uint& n_features [[buffer(6)]], uint2 thread_at [[thread_position_in_grid]]) {
  const ulong point = thread_at.x;
  constant HashEncodeLevel& level = levels[thread_at.y];
  const GridCell<D> at = find_cell<D>(inputs + point * D, level.scale, params.smoothstep != 0);
  uint rows[1 << D];
  float weights[1 << D];
  find_rows<D>(level, at.cell, rows);
  find_tangent_weights<D>(at, tangents + point * D, weights);
  encode<T, D, 0>(level, rows, weights, n_features, embeddings,
                  outputs + (point * params.n_levels + thread_at.y) * n_features);
}

#define INSTANTIATE_DIMS(T, D)                                            \
  INSTANTIATE_KERNEL("hash_encode_" #T "_" #D "_1", hash_encode, T, D, 1) \
  INSTANTIATE_KERNEL("hash_encode_" #T "_" #D "_2", hash_encode, T, D, 2) \
  INSTANTIATE_KERNEL("hash_encode_" #T "_" #D "_4", hash_encode, T, D, 4) \
  INSTANTIATE_KERNEL("hash_encode_" #T "_" #D "_8", hash_encode, T, D, 8) \
  INSTANTIATE_KERNEL("hash_encode_jvp_" #T "_" #D, hash_encode_jvp, T, D)
#define INSTANTIATE_TYPE(T) \
  INSTANTIATE_DIMS(T, 2)    \
  INSTANTIATE_DIMS(T, 3)    \
  INSTANTIATE_DIMS(T, 4)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
