// The second pass of means over rows that several threads had summed in parts; and means of empty
// rows.

#include <metal_stdlib>

#include "kernels/losses/row_means.metal.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// One thread per row. Without columns the mean is 0 / 0, NaN.
template <typename T>
kernel void row_means(device const float* parts [[buffer(0)]], device T* means [[buffer(1)]],
                      constant RowMeansParams& params [[buffer(2)]],
                      uint2 position [[thread_position_in_grid]],
                      uint2 threads [[threads_per_grid]]) {
  const ulong row = flat_index(position, threads);
  if (row >= params.n_rows) return;
  if (params.n_columns == 0) {
    means[row] = T(NAN);
    return;
  }
  CarefulSum sum = careful_sum_zero();
  for (uint i = 0; i < params.n_parts; ++i) careful_add(sum, parts[row * params.n_parts + i]);
  means[row] = T(careful_result(sum) * params.weight);
}

INSTANTIATE_KERNEL("row_means_float", row_means, float)
INSTANTIATE_KERNEL("row_means_half", row_means, half)
IF_BFLOAT(INSTANTIATE_KERNEL("row_means_bfloat", row_means, bfloat))
