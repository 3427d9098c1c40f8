// The shaders of MetalFusedBatchNormGrad: a thread goes down the rows of a part, in a few channels.

#include <metal_stdlib>

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_params.h"
#include "kernels/msl/formula.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/row_sum.h"

using namespace metal;

#include "kernels/fused_batch_norm_grad/fused_batch_norm_grad_formula.h"

// Sums of the gradients that pass the ReLU and of their products with x - mean, [parts, 2, columns];
// the gradients are kept in `passed`, which may be the gradients' memory. Grid: blocks of kColumns
// channels x parts.
template <typename T, int kColumns>
[[kernel]] void norm_grad_parts(device const T* gradients [[buffer(0)]],
                                device const T* features [[buffer(1)]],
                                device const T* x [[buffer(2)]],
                                device const float* mean [[buffer(3)]],
                                device T* passed [[buffer(4)]], device float* parts [[buffer(5)]],
                                constant FusedBatchNormGradParams& params [[buffer(6)]],
                                uint2 position [[thread_position_in_grid]]) {
  const ulong first = ulong(position.x) * kColumns, columns = ulong(params.columns);
  const int width = int(min(ulong(kColumns), columns - first));
  const ulong begin = ulong(position.y) * ulong(params.part_rows);
  const ulong end = min(ulong(params.rows), begin + ulong(params.part_rows));
  const bool relu6 = params.relu6 != 0;
  float means[kColumns], sums[kColumns], products[kColumns];
  for (int k = 0; k < kColumns; ++k) {
    means[k] = k < width ? mean[first + k] : 0.0f;
    sums[k] = products[k] = 0.0f;
  }
  if (width == kColumns) {
    for (ulong row = begin; row < end; ++row) {
      const ulong at = row * columns + first;
      float slopes[kColumns];
      for (int k = 0; k < kColumns; ++k) {
        slopes[k] = norm_grad_passed(float(gradients[at + k]), float(features[at + k]), relu6);
      }
      for (int k = 0; k < kColumns; ++k) {
        sums[k] += slopes[k];
        products[k] = fma(slopes[k], float(x[at + k]) - means[k], products[k]);
      }
      for (int k = 0; k < kColumns; ++k) passed[at + k] = T(slopes[k]);
    }
  } else {
    for (ulong row = begin; row < end; ++row) {
      const ulong at = row * columns + first;
      for (int k = 0; k < width; ++k) {
        const float slope =
            norm_grad_passed(float(gradients[at + k]), float(features[at + k]), relu6);
        sums[k] += slope;
        products[k] = fma(slope, float(x[at + k]) - means[k], products[k]);
        passed[at + k] = T(slope);
      }
    }
  }
  device float* const to = parts + ulong(position.y) * 2 * columns + first;
  for (int k = 0; k < width; ++k) {
    to[k] = sums[k];
    to[columns + k] = products[k];
  }
}

// One thread per channel. `factors`: three rows of channels.
kernel void norm_grad_totals(
    device const float* parts [[buffer(0)]], device const float* scale [[buffer(1)]],
    device const float* variance [[buffer(2)]], device float* d_scale [[buffer(3)]],
    device float* d_offset [[buffer(4)]], device float* factors [[buffer(5)]],
    constant FusedBatchNormGradParams& params [[buffer(6)]], uint c [[thread_position_in_grid]]) {
  const ulong columns = ulong(params.columns);
  float sum = 0.0f, product = 0.0f;
  for (ulong part = 0; part < params.n_parts; ++part) {
    sum += parts[part * 2 * columns + c];
    product += parts[part * 2 * columns + columns + c];
  }
  const float inverse = 1.0f / precise::sqrt(variance[c] + params.epsilon);
  const float count = params.training != 0 ? float(params.rows) : INFINITY;
  const NormGradFactors<float> found = norm_grad_factors(sum, product, scale[c], inverse, count);
  d_offset[c] = sum;
  d_scale[c] = product * inverse;
  factors[c] = found.by;
  factors[columns + c] = found.mean;
  factors[2 * columns + c] = found.slope;
}

// Grid: as that of the parts. d_x holds the gradients that passed before.
template <typename T, int kColumns>
[[kernel]] void norm_grad_d_x(device const T* x [[buffer(0)]],
                              device const float* mean [[buffer(1)]],
                              device const float* factors [[buffer(2)]],
                              device T* d_x [[buffer(3)]],
                              constant FusedBatchNormGradParams& params [[buffer(4)]],
                              uint2 position [[thread_position_in_grid]]) {
  const ulong first = ulong(position.x) * kColumns, columns = ulong(params.columns);
  const int width = int(min(ulong(kColumns), columns - first));
  const ulong begin = ulong(position.y) * ulong(params.part_rows);
  const ulong end = min(ulong(params.rows), begin + ulong(params.part_rows));
  float means[kColumns], by[kColumns], less[kColumns], slopes[kColumns];
  for (int k = 0; k < kColumns; ++k) {
    const ulong c = first + (k < width ? k : 0);
    means[k] = mean[c];
    by[k] = factors[c];
    less[k] = factors[columns + c];
    slopes[k] = factors[2 * columns + c];
  }
  if (width == kColumns) {
    for (ulong row = begin; row < end; ++row) {
      const ulong at = row * columns + first;
      float results[kColumns];
      for (int k = 0; k < kColumns; ++k) {
        results[k] = norm_grad_slope(float(d_x[at + k]), float(x[at + k]) - means[k], by[k],
                                     less[k], slopes[k]);
      }
      for (int k = 0; k < kColumns; ++k) d_x[at + k] = T(results[k]);
    }
  } else {
    for (ulong row = begin; row < end; ++row) {
      const ulong at = row * columns + first;
      for (int k = 0; k < width; ++k) {
        d_x[at + k] = T(norm_grad_slope(float(d_x[at + k]), float(x[at + k]) - means[k], by[k],
                                        less[k], slopes[k]));
      }
    }
  }
}

// As norm_grad_parts, of one channel of one picture, where channels come before the others. Grid:
// kLanes x channels of pictures, which are the parts.
template <typename T, int kLanes>
[[kernel]] void norm_grad_plane_parts(device const T* gradients [[buffer(0)]],
                                      device const T* features [[buffer(1)]],
                                      device const T* x [[buffer(2)]],
                                      device const float* mean [[buffer(3)]],
                                      device T* passed [[buffer(4)]],
                                      device float* parts [[buffer(5)]],
                                      constant FusedBatchNormGradParams& params [[buffer(6)]],
                                      uint2 position [[thread_position_in_grid]]) {
  const ulong n = ulong(params.part_rows), columns = ulong(params.columns), plane = position.y;
  const ulong first = plane * n, channel = plane % columns;
  const float center = mean[channel];
  float sum = 0.0f, product = 0.0f;
  for (ulong i = position.x; i < n; i += kLanes) {
    const float slope = norm_grad_passed(float(gradients[first + i]), float(features[first + i]),
                                         params.relu6 != 0);
    sum += slope;
    product = fma(slope, float(x[first + i]) - center, product);
    passed[first + i] = T(slope);
  }
  sum = row_sum<kLanes>(sum);
  product = row_sum<kLanes>(product);
  if (position.x == 0) {
    device float* const to = parts + plane / columns * 2 * columns + channel;
    to[0] = sum;
    to[columns] = product;
  }
}

// Grid: as that of its parts.
template <typename T, int kLanes>
[[kernel]] void norm_grad_plane_d_x(device const T* x [[buffer(0)]],
                                    device const float* mean [[buffer(1)]],
                                    device const float* factors [[buffer(2)]],
                                    device T* d_x [[buffer(3)]],
                                    constant FusedBatchNormGradParams& params [[buffer(4)]],
                                    uint2 position [[thread_position_in_grid]]) {
  const ulong n = ulong(params.part_rows), columns = ulong(params.columns);
  const ulong first = position.y * n, channel = position.y % columns;
  const float center = mean[channel], by = factors[channel];
  const float less = factors[columns + channel], slope = factors[2 * columns + channel];
  for (ulong i = position.x; i < n; i += kLanes) {
    d_x[first + i] =
        T(norm_grad_slope(float(d_x[first + i]), float(x[first + i]) - center, by, less, slope));
  }
}

#define INSTANTIATE(T)                                                                   \
  INSTANTIATE_KERNEL("norm_grad_parts_" #T "_1", norm_grad_parts, T, 1)                  \
  INSTANTIATE_KERNEL("norm_grad_parts_" #T "_32", norm_grad_parts, T, NORM_GRAD_COLUMNS) \
  INSTANTIATE_KERNEL("norm_grad_d_x_" #T "_1", norm_grad_d_x, T, 1)                      \
  INSTANTIATE_KERNEL("norm_grad_plane_parts_" #T "_1", norm_grad_plane_parts, T, 1)      \
  INSTANTIATE_KERNEL("norm_grad_plane_parts_" #T "_32", norm_grad_plane_parts, T, 32)    \
  INSTANTIATE_KERNEL("norm_grad_plane_d_x_" #T "_1", norm_grad_plane_d_x, T, 1)          \
  INSTANTIATE_KERNEL("norm_grad_plane_d_x_" #T "_32", norm_grad_plane_d_x, T, 32)        \
  INSTANTIATE_KERNEL("norm_grad_d_x_" #T "_32", norm_grad_d_x, T, NORM_GRAD_COLUMNS)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
