// The ops on tiles of a small network's products on the CPU, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_SIMD_H_
#define METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_SIMD_H_

#include <cstdint>

#include "kernels/fused_mlp/fused_mlp_params.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

// An activation, and the type that its values are rounded to.
struct MlpLayerEnd {
  uint32_t activation;  // MLP_...
  MlpShape shape;
  FloatType type;
};

// The functions work on rows of a tile's columns (fused_gemm_simd.h), or of half of them where it
// is narrow; rows of `from`, `y` and `to` are `from_row`, `y_row` and `to_row` apart.

// to = activation(tile + bias); bias may be null.
void ActivateTile(const MlpLayerEnd& end, int rows, bool narrow, const float* tile,
                  const float* bias, float* to, int64_t to_row);

// to = from activation'(.), where y is the activation's value.
void ScaleTile(const MlpLayerEnd& end, int rows, bool narrow, const float* from, int64_t from_row,
               const float* y, int64_t y_row, float* to, int64_t to_row);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_SIMD_H_
