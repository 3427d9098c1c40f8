// Sums over rows for shaders whose threads have a row each: blocks of neighbours, which a CPU's vectors
// and a GPU's loads want.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_ROWS_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_NN_ROWS_METAL_H_

#include <metal_stdlib>

#define ROW_LANES 16

// The largest of a row; -infinity of none. NaN does not count.
template <typename T>
inline float row_largest(device const T* row, uint columns) {
  float lanes[ROW_LANES];
  for (uint k = 0; k < ROW_LANES; ++k) lanes[k] = -INFINITY;
  uint i = 0;
  for (; i + ROW_LANES <= columns; i += ROW_LANES) {
    for (uint k = 0; k < ROW_LANES; ++k) {
      const float value = float(row[i + k]);
      lanes[k] = value > lanes[k] ? value : lanes[k];
    }
  }
  float largest = -INFINITY;
  for (uint k = 0; k < ROW_LANES; ++k) largest = metal::max(largest, lanes[k]);
  for (; i < columns; ++i) largest = metal::max(largest, float(row[i]));
  return largest;
}

// The sum of a formula of i, for i below `columns`.
template <typename Formula>
inline float row_sum(uint columns, thread const Formula& formula) {
  float lanes[ROW_LANES];
  for (uint k = 0; k < ROW_LANES; ++k) lanes[k] = 0.0f;
  uint i = 0;
  for (; i + ROW_LANES <= columns; i += ROW_LANES) {
    for (uint k = 0; k < ROW_LANES; ++k) lanes[k] += formula(i + k);
  }
  float sum = 0.0f;
  for (uint k = 0; k < ROW_LANES; ++k) sum += lanes[k];
  for (; i < columns; ++i) sum += formula(i);
  return sum;
}

// exp(row[i] - largest).
template <typename T>
struct RowExp {
  device const T* row;
  float largest;
  float operator()(uint i) const { return metal::exp(float(row[i]) - largest); }
};

#endif  // METAL_OPS_DEVICE_KERNELS_NN_ROWS_METAL_H_
