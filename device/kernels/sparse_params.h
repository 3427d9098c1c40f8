// Arguments of the shader of sparse.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_SPARSE_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_SPARSE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct SparseParams {
  uint64_t elements, rows, inner, columns;
  uint64_t step, column_step;  // between rows and columns of the dense matrix
  uint32_t adjoint;            // of the sparse one
  uint32_t block;              // columns that a thread has
};

#endif  // METAL_OPS_DEVICE_KERNELS_SPARSE_PARAMS_H_
