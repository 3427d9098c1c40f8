// What losses over pieces of elements share on the CPU.

#ifndef METAL_OPS_KERNELS_LOSSES_LOSS_PIECES_H_
#define METAL_OPS_KERNELS_LOSSES_LOSS_PIECES_H_

#include <cmath>
#include <cstdint>

#include "kernels/simd/float_types.h"

namespace metal_ops {

inline void StoreOne(const MutableFloatArray& to, int64_t at, float value) {
  float* const piece = to.Piece(at, &value);
  *piece = value;
  to.Store(at, 1, piece);
}

inline void StoreWeighted(const MutableFloatArray& to, int64_t at, int64_t n, float* values,
                          float weight) {
  float* const piece = to.Piece(at, values);
  for (int64_t i = 0; i < n; ++i) piece[i] = values[i] * weight;
  to.Store(at, n, piece);
}

// The mean of nothing, as tf.reduce_mean has it.
inline void FillNaN(const MutableFloatArray& to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) StoreOne(to, i, std::nanf(""));
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_LOSSES_LOSS_PIECES_H_
