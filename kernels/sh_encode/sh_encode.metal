// ShEncode and ShEncodeGrad. One thread per point.

#include <metal_stdlib>

#include "kernels/msl/formula.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/sh_encode/sh_encode_params.h"

using namespace metal;

#include "kernels/sh_encode/sh_encode_formula.h"

// Known when the pipeline is built, so that the loops over bands are unrolled.
constant uint kDegree [[function_constant(0)]];

template <typename T>
struct ShRow {
  device T* row;
  void set(int i, float y) const { row[i] = T(y); }
};
template <typename T>
struct ShGradients {
  device const T* row;
  float get(int i) const { return float(row[i]); }
};

template <typename T>
kernel void sh_encode(device const float* directions [[buffer(0)]], device T* outputs [[buffer(1)]],
                      constant ShEncodeParams& params [[buffer(2)]],
                      uint2 position [[thread_position_in_grid]],
                      uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_points) return;
  ShRow<T> to;
  to.row = outputs + i * (kDegree * kDegree);
  sh_coefficients(params, int(kDegree), directions[3 * i], directions[3 * i + 1],
                  directions[3 * i + 2], to);
}

template <typename T>
kernel void sh_encode_grad(device const T* d_outputs [[buffer(0)]],
                           device const float* directions [[buffer(1)]],
                           device float* directions_gradient [[buffer(2)]],
                           constant ShEncodeParams& params [[buffer(3)]],
                           uint2 position [[thread_position_in_grid]],
                           uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_points) return;
  ShGradients<T> g;
  g.row = d_outputs + i * (kDegree * kDegree);
  const ShGradient<float> sum = sh_gradient(params, int(kDegree), directions[3 * i],
                                            directions[3 * i + 1], directions[3 * i + 2], g);
  directions_gradient[3 * i] = sum.x;
  directions_gradient[3 * i + 1] = sum.y;
  directions_gradient[3 * i + 2] = sum.z;
}

#define INSTANTIATE_TYPE(T)                         \
  INSTANTIATE_KERNEL("sh_encode_" #T, sh_encode, T) \
  INSTANTIATE_KERNEL("sh_encode_grad_" #T, sh_encode_grad, T)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
