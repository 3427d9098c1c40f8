// The multiresolution hash grid of instant-ngp (Mueller et al. 2022) for one point in one level:
// cell, corner rows, interpolation weights and their derivatives. Shared by all hash-encode
// shaders; the same formulas as on the CPU.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_GRID_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_GRID_H_

#include <metal_stdlib>

#include "kernels/hash_encode/hash_grid_params.h"

// Per axis: the cell, the weight of its upper corner, and that weight's first and second derivative
// along x.
template <int D>
struct GridCell {
  uint cell[D];
  float weight[D];
  float slope[D];
  float curve[D];
};

// floor(position) as int32: saturates, and is 0 for NaN, so that every row lies within its level.
inline uint grid_cell_index(float floor) {
  const int inside = int(metal::clamp(floor, -2147483648.0f, 2147483520.0f));
  const int index = floor >= 2147483648.0f ? 2147483647 : inside;
  return floor == floor ? uint(index) : 0u;
}

template <int D>
inline GridCell<D> find_cell(device const float* point, float scale, bool smoothstep) {
  GridCell<D> at;
  for (int d = 0; d < D; ++d) {
    const float position = metal::fma(point[d], scale, 0.5f);
    const float floor = metal::floor(position);
    const float w = position - floor;
    at.cell[d] = grid_cell_index(floor);
    at.weight[d] = smoothstep ? w * w * (3.0f - 2.0f * w) : w;
    at.slope[d] = smoothstep ? 6.0f * w * (1.0f - w) * scale : scale;
    at.curve[d] = smoothstep ? (6.0f - 12.0f * w) * scale * scale : 0.0f;
  }
  return at;
}

// Rows of the 2^D corners within their level; bit d of a corner's number says whether it is the
// upper one along axis d.
template <int D>
inline void find_rows(constant HashEncodeLevel& level, thread const uint* cell, thread uint* rows) {
  const bool hashed = level.hashed != 0;
  const uint first = cell[0] * level.factors[0];
  rows[0] = first;
  rows[1] = first + level.factors[0];
  for (int d = 1; d < D; ++d) {
    const int n = 1 << d;
    const uint low = cell[d] * level.factors[d];
    const uint high = low + level.factors[d];
    for (int c = 0; c < n; ++c) {
      rows[c + n] = hashed ? rows[c] ^ high : rows[c] + high;
      rows[c] = hashed ? rows[c] ^ low : rows[c] + low;
    }
  }
  if (level.mask != 0) {
    for (int c = 0; c < (1 << D); ++c) rows[c] &= level.mask;
  } else {
    // row % size: the quotient by the reciprocal is at most 1 too small, and the wrapped difference
    // is then larger.
    for (int c = 0; c < (1 << D); ++c) {
      const uint rest = rows[c] - metal::mulhi(rows[c], level.reciprocal) * level.size;
      rows[c] = metal::min(rest, rest - level.size);
    }
  }
}

// Interpolation weights of the corners.
template <int D>
inline void find_weights(thread const GridCell<D>& at, thread float* weights) {
  weights[0] = 1.0f - at.weight[0];
  weights[1] = at.weight[0];
  for (int d = 1; d < D; ++d) {
    const int n = 1 << d;
    for (int c = 0; c < n; ++c) {
      weights[c + n] = weights[c] * at.weight[d];
      weights[c] = weights[c] * (1.0f - at.weight[d]);
    }
  }
}

// Derivatives of the weights along the direction v: sum_d v_d dw_c / dx_d, carried along as dual
// numbers.
template <int D>
inline void find_tangent_weights(thread const GridCell<D>& at, device const float* v,
                                 thread float* tangents) {
  float weights[1 << D];
  weights[0] = 1.0f - at.weight[0];
  weights[1] = at.weight[0];
  tangents[1] = at.slope[0] * v[0];
  tangents[0] = -tangents[1];
  for (int d = 1; d < D; ++d) {
    const int n = 1 << d;
    const float high = at.weight[d];
    const float low = 1.0f - high;
    const float change = at.slope[d] * v[d];
    for (int c = 0; c < n; ++c) {
      const float moved = weights[c] * change;
      tangents[c + n] = tangents[c] * high + moved;
      tangents[c] = tangents[c] * low - moved;
      weights[c + n] = weights[c] * high;
      weights[c] = weights[c] * low;
    }
  }
}

// Sums corner values, along axis d with the order[d]-th derivative of the weights (0, 1 or 2).
template <int D>
inline float contract(thread const GridCell<D>& at, thread const float* values,
                      thread const int* order) {
  float sums[1 << D];
  for (int c = 0; c < (1 << D); ++c) sums[c] = values[c];
  for (int d = D - 1; d >= 0; --d) {
    for (int c = 0; c < (1 << d); ++c) {
      const float change = sums[c + (1 << d)] - sums[c];
      sums[c] = order[d] == 0 ? metal::fma(change, at.weight[d], sums[c])
                              : change * (order[d] == 1 ? at.slope[d] : at.curve[d]);
    }
  }
  return sums[0];
}

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_GRID_H_
