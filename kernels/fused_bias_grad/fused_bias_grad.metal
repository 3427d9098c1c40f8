// The shaders of MetalFusedBiasGrad: a thread goes down the rows of a part, in a few columns.

#include <metal_stdlib>

#include "kernels/fused_bias_grad/fused_bias_grad_params.h"
#include "kernels/gemm/epilogue_params.h"
#include "kernels/msl/formula.h"
#include "kernels/msl/instantiate.h"
#include "kernels/msl/row_sum.h"

using namespace metal;

#include "kernels/fused_bias_grad/fused_bias_grad_formula.h"

// A case for each activation.
#define BIAS_GRAD_SWITCH(activation, CASE) \
  switch (activation) {                    \
    CASE(BIAS_GRAD_RELU)                   \
    CASE(BIAS_GRAD_RELU6)                  \
    CASE(BIAS_GRAD_ELU)                    \
    CASE(BIAS_GRAD_LEAKY_RELU)             \
    CASE(BIAS_GRAD_SIGMOID)                \
    CASE(BIAS_GRAD_TANH)                   \
    CASE(BIAS_GRAD_SWISH)                  \
    CASE(BIAS_GRAD_GELU_EXACT)             \
    CASE(BIAS_GRAD_GELU_APPROXIMATE)       \
    CASE(BIAS_GRAD_MISH)                   \
  }

// The first `width` columns from `first` on. kColumns at once are read before any is written, as
// backprops may have the gradients' memory.
template <int kActivation, typename T, int kColumns>
inline void bias_grad_columns(device const T* gradients, device const T* features,
                              device T* backprops, device float* parts,
                              constant FusedBiasGradParams& params, ulong first, ulong width,
                              ulong part) {
  const ulong columns = ulong(params.columns);
  const ulong begin = part * ulong(params.part_rows);
  const ulong end = min(ulong(params.rows), begin + ulong(params.part_rows));
  float totals[kColumns];
  for (int k = 0; k < kColumns; ++k) totals[k] = 0.0f;
  if (width == ulong(kColumns)) {
    for (ulong row = begin; row < end; ++row) {
      const ulong at = row * columns + first;
      float slopes[kColumns];
      for (int k = 0; k < kColumns; ++k) {
        slopes[k] = activation_gradient<kActivation>(float(gradients[at + k]),
                                                     float(features[at + k]), params.alpha);
      }
      for (int k = 0; k < kColumns; ++k) totals[k] += slopes[k];
      for (int k = 0; k < kColumns; ++k) backprops[at + k] = T(slopes[k]);
    }
  } else {
    for (ulong row = begin; row < end; ++row) {
      const ulong at = row * columns + first;
      for (ulong k = 0; k < width; ++k) {
        const float slope = activation_gradient<kActivation>(float(gradients[at + k]),
                                                             float(features[at + k]), params.alpha);
        totals[k] += slope;
        backprops[at + k] = T(slope);
      }
    }
  }
  for (ulong k = 0; k < width; ++k) parts[part * columns + first + k] = totals[k];
}

// Grid: blocks of kColumns columns x parts.
template <typename T, int kColumns>
[[kernel]] void fused_bias_grad(device const T* gradients [[buffer(0)]],
                                device const T* features [[buffer(1)]],
                                device T* backprops [[buffer(2)]],
                                device float* parts [[buffer(3)]],
                                constant FusedBiasGradParams& params [[buffer(4)]],
                                uint2 position [[thread_position_in_grid]]) {
  const ulong first = ulong(position.x) * kColumns;
  const ulong width = min(ulong(kColumns), ulong(params.columns) - first);
#define COLUMNS(activation)                                                                   \
  case activation:                                                                            \
    bias_grad_columns<activation, T, kColumns>(gradients, features, backprops, parts, params, \
                                               first, width, position.y);                     \
    break;
  BIAS_GRAD_SWITCH(params.activation, COLUMNS)
#undef COLUMNS
}

// One channel of one picture, where channels come before the others.
template <int kActivation, typename T, int kLanes>
inline float bias_grad_plane(device const T* gradients, device const T* features,
                             device T* backprops, constant FusedBiasGradParams& params, ulong plane,
                             uint lane) {
  const ulong n = ulong(params.part_rows), first = plane * n;
  float total = 0.0f;
  for (ulong i = lane; i < n; i += kLanes) {
    const float slope = activation_gradient<kActivation>(float(gradients[first + i]),
                                                         float(features[first + i]), params.alpha);
    total += slope;
    backprops[first + i] = T(slope);
  }
  return total;
}

// Grid: kLanes x channels of pictures, which are the parts.
template <typename T, int kLanes>
[[kernel]] void fused_bias_grad_planes(device const T* gradients [[buffer(0)]],
                                       device const T* features [[buffer(1)]],
                                       device T* backprops [[buffer(2)]],
                                       device float* parts [[buffer(3)]],
                                       constant FusedBiasGradParams& params [[buffer(4)]],
                                       uint2 position [[thread_position_in_grid]]) {
  float total = 0.0f;
#define PLANE(activation)                                                                  \
  case activation:                                                                         \
    total = bias_grad_plane<activation, T, kLanes>(gradients, features, backprops, params, \
                                                   position.y, position.x);                \
    break;
  BIAS_GRAD_SWITCH(params.activation, PLANE)
#undef PLANE
  total = row_sum<kLanes>(total);
  if (position.x == 0) parts[position.y] = total;
}

template <typename T>
[[kernel]] void fused_bias_grad_sum(device const float* parts [[buffer(0)]],
                                    device T* d_bias [[buffer(1)]],
                                    constant FusedBiasGradParams& params [[buffer(2)]],
                                    uint position [[thread_position_in_grid]]) {
  float sum = 0.0f;
  for (uint part = 0; part < params.n_parts; ++part) {
    sum += parts[ulong(part) * ulong(params.columns) + position];
  }
  d_bias[position] = T(sum);
}

#define INSTANTIATE(T)                                                                   \
  INSTANTIATE_KERNEL("fused_bias_grad_" #T "_1", fused_bias_grad, T, 1)                  \
  INSTANTIATE_KERNEL("fused_bias_grad_" #T "_32", fused_bias_grad, T, BIAS_GRAD_COLUMNS) \
  INSTANTIATE_KERNEL("fused_bias_grad_planes_" #T "_1", fused_bias_grad_planes, T, 1)    \
  INSTANTIATE_KERNEL("fused_bias_grad_planes_" #T "_32", fused_bias_grad_planes, T, 32)  \
  INSTANTIATE_KERNEL("fused_bias_grad_sum_" #T, fused_bias_grad_sum, T)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
