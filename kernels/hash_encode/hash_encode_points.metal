// HashEncodePointGrad and HashEncodeJvpPointGrad: gradients of points. T, D and F as in
// hash_encode.metal.

#include <metal_stdlib>

#include "kernels/hash_encode/hash_encode_params.h"
#include "kernels/hash_encode/hash_grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// <g, row> of every corner, from which gradients of points are contracted.
template <typename T, int D, int F>
inline void corner_values(constant HashEncodeLevel& level, thread const GridCell<D>& at,
                          uint n_features, device const T* embeddings, device const T* g,
                          thread float* values) {
  const uint width = F == 0 ? n_features : F;
  uint rows[1 << D];
  find_rows<D>(level, at.cell, rows);
  device const T* table = embeddings + ulong(level.offset) * width;
  for (int c = 0; c < (1 << D); ++c) {
    device const T* row = table + ulong(rows[c]) * width;
    float sum = 0.0f;
    for (uint f = 0; f < width; ++f) sum += float(g[f]) * float(row[f]);
    values[c] = sum;
  }
}

// outputs[n, k] = sum_l d <g_l, encoding_l> / d x_k.  Grid: points; a thread sums its levels in
// order.
template <typename T, int D, int F>
kernel void hash_encode_point_grad(device const T* d_outputs [[buffer(0)]],
                                   device const float* inputs [[buffer(1)]],
                                   device const T* embeddings [[buffer(2)]],
                                   device float* outputs [[buffer(3)]],
                                   constant HashEncodeParams& params [[buffer(4)]],
                                   constant HashEncodeLevel* levels [[buffer(5)]],
                                   uint thread_at [[thread_position_in_grid]]) {
  const ulong point = thread_at;
  float gradient[D];
  for (int k = 0; k < D; ++k) gradient[k] = 0.0f;
  for (uint l = 0; l < params.n_levels; ++l) {
    constant HashEncodeLevel& level = levels[l];
    const GridCell<D> at = find_cell<D>(inputs + point * D, level.scale, params.smoothstep != 0);
    float values[1 << D];
    corner_values<T, D, F>(level, at, F, embeddings, d_outputs + (point * params.n_levels + l) * F,
                           values);
    for (int k = 0; k < D; ++k) {
      int order[D];
      for (int d = 0; d < D; ++d) order[d] = d == k ? 1 : 0;
      gradient[k] += contract<D>(at, values, order);
    }
  }
  for (int k = 0; k < D; ++k) outputs[point * D + k] = gradient[k];
}

// outputs[n, k] = sum_l sum_d v_d d^2 <g_l, encoding_l> / d x_k d x_d: the Hessian times v.  Grid:
// points.
template <typename T, int D>
kernel void hash_encode_jvp_point_grad(
    device const float* tangents [[buffer(0)]], device const T* d_outputs [[buffer(1)]],
    device const float* inputs [[buffer(2)]], device const T* embeddings [[buffer(3)]],
    device float* outputs [[buffer(4)]], constant HashEncodeParams& params [[buffer(5)]],
    constant HashEncodeLevel* levels [[buffer(6)]], constant uint& n_features [[buffer(7)]],
    uint thread_at [[thread_position_in_grid]]) {
  const ulong point = thread_at;
  device const float* v = tangents + point * D;
  float gradient[D];
  for (int k = 0; k < D; ++k) gradient[k] = 0.0f;
  for (uint l = 0; l < params.n_levels; ++l) {
    constant HashEncodeLevel& level = levels[l];
    const GridCell<D> at = find_cell<D>(inputs + point * D, level.scale, params.smoothstep != 0);
    float values[1 << D];
    corner_values<T, D, 0>(level, at, n_features, embeddings,
                           d_outputs + (point * params.n_levels + l) * n_features, values);
    for (int k = 0; k < D; ++k) {
      for (int d = k; d < D; ++d) {
        if (d == k && params.smoothstep == 0) continue;  // linear along one axis
        int order[D];
        for (int i = 0; i < D; ++i) order[i] = (i == k ? 1 : 0) + (i == d ? 1 : 0);
        const float second = contract<D>(at, values, order);
        gradient[k] += second * v[d];
        if (d != k) gradient[d] += second * v[k];
      }
    }
  }
  for (int k = 0; k < D; ++k) outputs[point * D + k] = gradient[k];
}

#define INSTANTIATE_POINT_GRAD(T, D, F) \
  INSTANTIATE_KERNEL("hash_encode_point_grad_" #T "_" #D "_" #F, hash_encode_point_grad, T, D, F)
#define INSTANTIATE_DIMS(T, D)    \
  INSTANTIATE_POINT_GRAD(T, D, 1) \
  INSTANTIATE_POINT_GRAD(T, D, 2) \
  INSTANTIATE_POINT_GRAD(T, D, 4) \
  INSTANTIATE_POINT_GRAD(T, D, 8) \
  INSTANTIATE_KERNEL("hash_encode_jvp_point_grad_" #T "_" #D, hash_encode_jvp_point_grad, T, D)
#define INSTANTIATE_TYPE(T) \
  INSTANTIATE_DIMS(T, 2)    \
  INSTANTIATE_DIMS(T, 3)    \
  INSTANTIATE_DIMS(T, 4)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
