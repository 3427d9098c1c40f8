// RobustLoss: the loss and its derivatives in one pass over memory.

#include <metal_stdlib>

#include "kernels/losses/row_means.metal.h"
#include "kernels/msl/formula.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/robust_loss/robust_loss_params.h"

using namespace metal;

#include "kernels/robust_loss/robust_loss_formula.h"

// Grid: the parts of the rows. Without targets any buffer may stand for them, and without
// kParameters for the last two.
template <typename T, bool kParameters>
kernel void robust_loss(device const T* predictions [[buffer(0)]],
                        device const T* targets [[buffer(1)]], constant float* alphas [[buffer(2)]],
                        constant float* scales [[buffer(3)]], device T* losses [[buffer(4)]],
                        device float* parts [[buffer(5)]], device T* slopes [[buffer(6)]],
                        device T* slopes_alpha [[buffer(7)]], device T* slopes_scale [[buffer(8)]],
                        constant RobustLossParams& params [[buffer(9)]],
                        constant RowMeansParams& rows [[buffer(10)]],
                        uint2 position [[thread_position_in_grid]],
                        uint2 threads [[threads_per_grid]]) {
  const RowPart at = row_part(rows, flat_index(position, threads));
  if (at.row >= rows.n_rows) return;
  CarefulSum sum = careful_sum_zero();
  for (ulong i = at.begin; i < at.end; i += rows.n_parts) {
    const float alpha = alphas[params.alpha_period == 1 ? 0 : i % params.alpha_period];
    const float scale = scales[params.scale_period == 1 ? 0 : i % params.scale_period];
    const float x = float(predictions[i]) - (params.compare != 0 ? float(targets[i]) : 0.0f);
    const RobustLossValues<float> value = robust_loss_values<kParameters>(x, alpha, scale);
    careful_add(sum, value.loss);
    slopes[i] = T(value.slope * rows.weight);
    if (kParameters) {
      slopes_alpha[i] = T(value.slope_alpha * rows.weight);
      slopes_scale[i] = T(value.slope_scale * rows.weight);
    }
  }
  store_row_part(rows, at, sum, losses, parts);
}

#define INSTANTIATE_TYPE(T)                                    \
  INSTANTIATE_KERNEL("robust_loss_" #T, robust_loss, T, false) \
  INSTANTIATE_KERNEL("robust_loss_parameters_" #T, robust_loss, T, true)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
