// Means of consecutive rows on the CPU, from elements that come in pieces.

#ifndef METAL_OPS_KERNELS_LOSSES_ROW_MEAN_WRITER_H_
#define METAL_OPS_KERNELS_LOSSES_ROW_MEAN_WRITER_H_

#include <algorithm>
#include <cstdint>

#include "kernels/simd/float_types.h"

namespace metal_ops {

// Writes to[first_row], to[first_row + 1], ... as their rows are complete; the last ones at Flush.
class RowMeanWriter {
 public:
  RowMeanWriter(const MutableFloatArray& to, int64_t n_columns, int64_t first_row)
      : to_(to),
        n_columns_(n_columns),
        weight_(1.0f / static_cast<float>(n_columns)),
        next_row_(first_row) {}

  void Add(const float* values, int64_t n) {
    while (n > 0) {
      const int64_t m = std::min(n, n_columns_ - column_);
      sum_ += Sum(values, m);
      values += m;
      n -= m;
      column_ += m;
      if (column_ < n_columns_) return;
      means_[n_means_++] = static_cast<float>(sum_ * weight_);
      sum_ = 0.0;
      column_ = 0;
      if (n_means_ == kMeans) Flush();
    }
  }

  void Flush() {
    float* const piece = to_.Piece(next_row_, means_);
    if (piece != means_) std::copy_n(means_, n_means_, piece);
    to_.Store(next_row_, n_means_, piece);
    next_row_ += n_means_;
    n_means_ = 0;
  }

 private:
  static constexpr int64_t kMeans = 256;
  static constexpr int64_t kLanes = 16;

  static double Sum(const float* values, int64_t n) {
    double sum = 0.0;
    if (n >= 2 * kLanes) {
      // Few values join before they are added to a double: no digits to speak of are lost.
      float lanes[kLanes] = {};
      for (; n >= kLanes; n -= kLanes, values += kLanes) {
        for (int64_t i = 0; i < kLanes; ++i) lanes[i] += values[i];
      }
      for (const float lane : lanes) sum += lane;
    }
    for (int64_t i = 0; i < n; ++i) sum += values[i];
    return sum;
  }

  const MutableFloatArray to_;
  const int64_t n_columns_;
  const float weight_;
  int64_t next_row_;
  int64_t column_ = 0;
  double sum_ = 0.0;
  float means_[kMeans];
  int64_t n_means_ = 0;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_LOSSES_ROW_MEAN_WRITER_H_
