// Products of sparse matrices and dense ones.

#include <metal_stdlib>

#include "device/kernels/complex.metal.h"
#include "device/kernels/sparse_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#define SPARSE_LANES 16  // columns that a thread adds up side by side

inline uint times(uint a, uint b) { return a * b; }

// A product with elements at `indices` [elements, 2] of a matrix; those outside of it are skipped. Each
// thread has `block` columns of the result to itself and takes the elements in their order. Grid: blocks
// of columns.
template <typename T, typename Index>
kernel void sparse_product(device const Index* indices [[buffer(0)]],
                           device const T* values [[buffer(1)]], device const T* b [[buffer(2)]],
                           device T* out [[buffer(3)]], constant SparseParams& p [[buffer(4)]],
                           uint block [[thread_position_in_grid]]) {
  const ulong first = ulong(block) * p.block;
  const ulong width = min(ulong(p.block), p.columns - first);
  for (ulong row = 0; row < p.rows; ++row) {
    for (ulong k = 0; k < width; ++k) out[row * p.columns + first + k] = T(0);
  }
  for (ulong i = 0; i < p.elements; ++i) {
    const ulong row = ulong(indices[2 * i + p.adjoint]), at = ulong(indices[2 * i + 1 - p.adjoint]);
    if (row >= p.rows || at >= p.inner) continue;
    const T value = values[i];
    device T* const to = out + row * p.columns + first;
    device const T* const from = b + at * p.step + first * p.column_step;
    if (p.column_step == 1) {
      // All are read before the first is written: else a compiler has to find out whether they overlap, at each element.
      ulong k = 0;
      for (; k + SPARSE_LANES <= width; k += SPARSE_LANES) {
        T sums[SPARSE_LANES];
        for (uint j = 0; j < SPARSE_LANES; ++j) sums[j] = to[k + j] + times(value, from[k + j]);
        for (uint j = 0; j < SPARSE_LANES; ++j) to[k + j] = sums[j];
      }
      for (; k < width; ++k) to[k] += times(value, from[k]);
    } else {
      for (ulong k = 0; k < width; ++k) to[k] += times(value, from[k * p.column_step]);
    }
  }
}
#define SPARSE_PRODUCT(type)                                                    \
  INSTANTIATE_KERNEL("sparse_product_" #type "_int", sparse_product, type, int) \
  INSTANTIATE_KERNEL("sparse_product_" #type "_long", sparse_product, type, long)
SPARSE_PRODUCT(float)
SPARSE_PRODUCT(uint)
SPARSE_PRODUCT(float2)
