// Shared by losses over pieces of elements on the CPU.

#ifndef METAL_OPS_KERNELS_LOSSES_LOSS_PIECES_H_
#define METAL_OPS_KERNELS_LOSSES_LOSS_PIECES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/losses/row_mean_writer.h"
#include "kernels/runtime/op.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

inline void StoreOne(const MutableFloatArray& to, int64_t at, float value) {
  float* const piece = to.Piece(at, &value);
  *piece = value;
  to.Store(at, 1, piece);
}

// Elements that are worked on at a time, a multiple of every vector.
constexpr int64_t kLossPiece = 256;

// A piece of elements: their losses, derivatives of these, and scratch memory. One struct: a
// processor that compares addresses modulo 4096 would take stores to a buffer of another frame for
// stores to the next inputs.
struct LossBuffers {
  alignas(64) float inputs[2][kLossPiece];
  float loss[kLossPiece], slopes[3][kLossPiece];
};

// Calls `elements(at, n, buffers)` for pieces of a call's elements on threads. Output 0 gets the
// losses or, where `reduce_last`, their means over the last dimension; the next n_slopes outputs
// the factors of the loss' incoming gradient.
template <typename Elements>
void ForLossPieces(CpuCall& call, bool reduce_last, int n_slopes, const Elements& elements) {
  constexpr int64_t kCycles = 8;
  const int64_t n = call.inputs[0].n_elements;
  const MutableFloatArray to_loss = call.float_out(0);
  if (n == 0) {
    // The mean of nothing, as tf.reduce_mean has it.
    for (int64_t i = 0; i < call.outputs[0].n_elements; ++i) StoreOne(to_loss, i, std::nanf(""));
    return;
  }
  const int64_t unit = reduce_last ? call.in_shapes[0].dims.back() : 1;
  const float weight = 1.0f / static_cast<float>(unit);
  call.ParallelFor(n / unit, kCycles * unit, [&](int64_t begin_unit, int64_t end_unit) {
    LossBuffers buffers;
    RowMeanWriter means(to_loss, unit, begin_unit);
    const auto store = [&](int output, int64_t at, int64_t m, float* values, float factor) {
      const MutableFloatArray to = call.float_out(output);
      float* const piece = to.Piece(at, values);
      for (int64_t i = 0; i < m; ++i) piece[i] = values[i] * factor;
      to.Store(at, m, piece);
    };
    for (int64_t at = begin_unit * unit; at < end_unit * unit; at += kLossPiece) {
      const int64_t m = std::min(kLossPiece, end_unit * unit - at);
      elements(at, m, buffers);
      reduce_last ? means.Add(buffers.loss, m) : store(0, at, m, buffers.loss, 1.0f);
      for (int i = 0; i < n_slopes; ++i) {
        // Derivatives may be unused: TensorFlow knows while it runs a graph.
        if (call.IsWanted(i + 1)) store(i + 1, at, m, buffers.slopes[i], weight);
      }
    }
    means.Flush();
  });
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_LOSSES_LOSS_PIECES_H_
