// Products of sparse matrices and dense ones.

#include <metal_stdlib>

#include "device/kernels/sparse_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// Of elements at `indices` [elements, 2] of a matrix; what lies outside of it is skipped. Each thread has
// `block` columns of the result to itself and takes the elements in their order. Grid: blocks of columns.
template <typename Index>
kernel void sparse_product(device const Index* indices [[buffer(0)]],
                           device const float* values [[buffer(1)]],
                           device const float* b [[buffer(2)]], device float* out [[buffer(3)]],
                           constant SparseParams& p [[buffer(4)]],
                           uint block [[thread_position_in_grid]]) {
  const ulong first = ulong(block) * p.block;
  const ulong width = min(ulong(p.block), p.columns - first);
  for (ulong row = 0; row < p.rows; ++row) {
    for (ulong k = 0; k < width; ++k) out[row * p.columns + first + k] = 0.0f;
  }
  for (ulong i = 0; i < p.elements; ++i) {
    const ulong row = ulong(indices[2 * i + p.adjoint]), at = ulong(indices[2 * i + 1 - p.adjoint]);
    if (row >= p.rows || at >= p.inner) continue;
    const float value = values[i];
    device float* const to = out + row * p.columns + first;
    device const float* const from = b + at * p.step + first * p.column_step;
    if (p.column_step == 1) {
      for (ulong k = 0; k < width; ++k) to[k] += value * from[k];
    } else {
      for (ulong k = 0; k < width; ++k) to[k] += value * from[k * p.column_step];
    }
  }
}
INSTANTIATE_KERNEL("sparse_product_int", sparse_product, int)
INSTANTIATE_KERNEL("sparse_product_long", sparse_product, long)
