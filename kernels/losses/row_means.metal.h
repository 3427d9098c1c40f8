// Sums in a fixed order for losses that are averaged over rows: see
// kernels/losses/row_means_params.h.

#ifndef METAL_OPS_KERNELS_LOSSES_ROW_MEANS_METAL_H_
#define METAL_OPS_KERNELS_LOSSES_ROW_MEANS_METAL_H_

#include <metal_stdlib>

#include "kernels/losses/row_means_params.h"

// Neumaier's sum: the rounding errors of additions are kept apart, as good as a sum in double.
struct CarefulSum {
  float sum;
  float lost;
};

inline CarefulSum careful_sum_zero() {
  CarefulSum s;
  s.sum = 0.0f;
  s.lost = 0.0f;
  return s;
}

inline void careful_add(thread CarefulSum& s, float term) {
  const float next = s.sum + term;
  s.lost += metal::fabs(s.sum) >= metal::fabs(term) ? (s.sum - next) + term : (term - next) + s.sum;
  s.sum = next;
}

// Infinity has lost NaN.
inline float careful_result(CarefulSum s) {
  return metal::isfinite(s.sum) ? s.sum + s.lost : s.sum;
}

// The elements of one thread: row r, columns part, part + n_parts, ...
struct RowPart {
  ulong row;
  ulong part;
  ulong begin;  // first element, counted over all rows
  ulong end;    // of the row
};

inline RowPart row_part(constant RowMeansParams& p, ulong thread_index) {
  RowPart at;
  at.row = p.n_parts == 1 ? thread_index : thread_index / p.n_parts;
  at.part = p.n_parts == 1 ? 0 : thread_index % p.n_parts;
  at.begin = at.row * p.n_columns + at.part;
  at.end = (at.row + 1) * p.n_columns;
  return at;
}

// The mean, where the thread has the whole row, else its part of the sum.
template <typename T>
inline void store_row_part(constant RowMeansParams& p, RowPart at, CarefulSum sum, device T* means,
                           device float* parts) {
  const float total = careful_result(sum);
  if (p.n_parts == 1) {
    means[at.row] = T(total * p.weight);
  } else {
    parts[at.row * p.n_parts + at.part] = total;
  }
}

#endif  // METAL_OPS_KERNELS_LOSSES_ROW_MEANS_METAL_H_
