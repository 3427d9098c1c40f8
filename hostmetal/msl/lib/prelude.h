// Everything that <metal_stdlib> brings, for the CPU. The driver includes it (precompiled) before
// every shader, so the public headers in include/ are empty.
#pragma once

#include "function_table.h"
#include "internals.h"
#include "log.h"
#include "runtime.h"
#ifdef _MSL_TENSORS  // sources of Metal 4 that name tensors
#include "tensor_ops.h"
#endif

// <simd/simd.h>'s names for types shared with the host.
#define MSL_SIMD_NAMES(name)        \
  typedef name##2 vector_##name##2; \
  typedef name##3 vector_##name##3; \
  typedef name##4 vector_##name##4; \
  typedef name##2 simd_##name##2;   \
  typedef name##3 simd_##name##3;   \
  typedef name##4 simd_##name##4;   \
  namespace simd {                  \
  using ::name##2;                  \
  using ::name##3;                  \
  using ::name##4;                  \
  }
MSL_SIMD_NAMES(char)
MSL_SIMD_NAMES(uchar)
MSL_SIMD_NAMES(short)
MSL_SIMD_NAMES(ushort)
MSL_SIMD_NAMES(int)
MSL_SIMD_NAMES(uint)
MSL_SIMD_NAMES(long)
MSL_SIMD_NAMES(ulong)
MSL_SIMD_NAMES(half)
MSL_SIMD_NAMES(float)
#define MSL_SIMD_MATRICES(shape)            \
  typedef float##shape matrix_float##shape; \
  typedef float##shape simd_float##shape;   \
  namespace simd {                          \
  using ::float##shape;                     \
  }
MSL_SIMD_MATRICES(2x2)
MSL_SIMD_MATRICES(2x3)
MSL_SIMD_MATRICES(2x4)
MSL_SIMD_MATRICES(3x2)
MSL_SIMD_MATRICES(3x3)
MSL_SIMD_MATRICES(3x4)
MSL_SIMD_MATRICES(4x2)
MSL_SIMD_MATRICES(4x3)
MSL_SIMD_MATRICES(4x4)
