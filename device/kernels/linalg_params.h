// Arguments of the shaders of linalg.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_LINALG_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_LINALG_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define LINALG_THREADS 64  // that share a matrix
#define LINALG_BLOCK 16    // right hand sides that a thread solves side by side
#define LINALG_PANEL 8     // columns of a decomposition that are made before others see them

// Steps of the QL algorithm whose turns are kept before the vectors are turned, and pairs of floats per row that these
// and the rest of a matrix' scratch memory take.
#define EIGEN_SWEEPS 16
#define EIGEN_SCRATCH (EIGEN_SWEEPS + 4)

struct LinalgParams {
  uint32_t rows, columns;
  uint32_t kept;     // rows of R and columns of Q; of eigenvalues: whether vectors are wanted
  uint32_t lower;    // the triangle that counts,
  uint32_t adjoint;  // of the conjugated transpose
  uint32_t block;    // columns whose reflections are made before those behind them have these
  uint32_t columns_together;  // which one thread reflects
  uint32_t apart;             // elements from one column to the next while they are reflected
};

#endif  // METAL_OPS_DEVICE_KERNELS_LINALG_PARAMS_H_
