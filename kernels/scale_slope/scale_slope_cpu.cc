// ScaleSlope and ScaleSlopeSum on the CPU.

#include <algorithm>
#include <vector>

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

// Elements that are worked on at a time.
constexpr int64_t kPiece = 1024;

// d_loss for each element, where `per_row` elements share one.
struct LossGradient {
  FloatArray values;
  int64_t per_row;

  // For elements [begin, begin + n), n <= kPiece. Both buffers have kPiece elements.
  const float* Read(int64_t begin, int64_t n, float* buffer, float* rows) const {
    if (per_row == 1) return values.Read(begin, n, buffer);
    const int64_t first = begin / per_row, last = (begin + n - 1) / per_row;
    const float* const from = values.Read(first, last - first + 1, rows);
    int64_t at = 0;
    for (int64_t row = first; row <= last; ++row) {
      const int64_t end = std::min(n, (row + 1) * per_row - begin);
      const float value = from[row - first];
      while (at < end) buffer[at++] = value;
    }
    return buffer;
  }
};

LossGradient LossGradientOf(const CpuCall& call) {
  return {call.floats(0), call.inputs[1].n_elements / call.inputs[0].n_elements};
}

void ScaleSlope(CpuCall& call) {
  const int64_t n = call.inputs[1].n_elements;
  if (n == 0) return;
  const LossGradient d_loss = LossGradientOf(call);
  const FloatArray from = call.floats(1);
  const MutableFloatArray to = call.float_out(0);
  call.ParallelFor(n, 2, [=](int64_t begin, int64_t end) {
    float wide[kPiece], factors[kPiece], rows[kPiece], narrow[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t m = std::min(kPiece, end - at);
      const float* const x = from.Read(at, m, wide);
      const float* const by = d_loss.Read(at, m, factors, rows);
      float* const piece = to.Piece(at, narrow);
      for (int64_t i = 0; i < m; ++i) piece[i] = x[i] * by[i];
      to.Store(at, m, piece);
    }
  });
}
CPU_KERNEL("ScaleSlope", ScaleSlope);

// So many elements per block at least, and so many blocks at most: blocks only depend on the shape,
// so that any number of threads gives the same bits.
constexpr int64_t kBlock = 1 << 15;
constexpr int64_t kBlocks = 64;
// Independent sums of one channel, for the vector units.
constexpr int64_t kLanes = 32;

void Sum(const FloatArray& from, const LossGradient& d_loss, int64_t begin, int64_t end,
         int64_t channels, double* sums) {
  float wide[kPiece], factors[kPiece], rows[kPiece];
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t m = std::min(kPiece, end - at);
    const float* const x = from.Read(at, m, wide);
    const float* const by = d_loss.Read(at, m, factors, rows);
    if (channels == 1) {
      float lanes[kLanes] = {};
      int64_t i = 0;
      for (; i + kLanes <= m; i += kLanes) {
        for (int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * by[i + j];
      }
      for (; i < m; ++i) lanes[0] += x[i] * by[i];
      for (const float lane : lanes) sums[0] += lane;
    } else {
      int64_t c = at % channels;
      for (int64_t i = 0; i < m; ++i) {
        sums[c] += x[i] * by[i];
        if (++c == channels) c = 0;
      }
    }
  }
}

void ScaleSlopeSum(CpuCall& call) {
  const int64_t n = call.inputs[1].n_elements, channels = call.outputs[0].n_elements;
  float* const to = call.out<float>(0);
  std::fill_n(to, channels, 0.0f);
  if (n == 0) return;
  const LossGradient d_loss = LossGradientOf(call);
  const FloatArray from = call.floats(1);
  const int64_t rows = n / channels;
  const int64_t rows_per_block = std::max(kBlock / channels + 1, (rows + kBlocks - 1) / kBlocks);
  const int64_t n_blocks = (rows + rows_per_block - 1) / rows_per_block;
  std::vector<double> sums(n_blocks * channels);
  call.ParallelFor(n_blocks, 2 * rows_per_block * channels, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * rows_per_block * channels;
      const int64_t end = std::min(n, begin + rows_per_block * channels);
      Sum(from, d_loss, begin, end, channels, sums.data() + block * channels);
    }
  });
  for (int64_t c = 0; c < channels; ++c) {
    double total = 0.0;
    for (int64_t block = 0; block < n_blocks; ++block) total += sums[block * channels + c];
    to[c] = static_cast<float>(total);
  }
}
CPU_KERNEL("ScaleSlopeSum", ScaleSlopeSum);

}  // namespace
}  // namespace metal_ops
