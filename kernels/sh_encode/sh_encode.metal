// ShEncode and ShEncodeGrad. One thread a point; sh_encode_params.h has the formulas.

#include <metal_stdlib>

#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/sh_encode/sh_encode_params.h"

using namespace metal;

// Known when the pipeline is built, so that the loops over bands are unrolled.
constant uint kDegree [[function_constant(0)]];

// (x + iy)^(m+1) from (x + iy)^m.
inline float2 next_power(float2 power, float x, float y) {
  return float2(fma(x, power.x, -(y * power.y)), fma(x, power.y, y * power.x));
}

template <typename T>
kernel void sh_encode(device const float* directions [[buffer(0)]], device T* outputs [[buffer(1)]],
                      constant ShEncodeParams& params [[buffer(2)]],
                      uint2 position [[thread_position_in_grid]],
                      uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_points) return;
  const float x = directions[3 * i], y = directions[3 * i + 1], z = directions[3 * i + 2];
  device T* out = outputs + i * (kDegree * kDegree);
  float2 power = float2(1.0f, 0.0f);
  for (uint m = 0; m < kDegree; ++m) {
    float before = 0.0f, q = params.first[m];
    for (uint l = m; l < kDegree; ++l) {
      if (l > m) {
        const float next = fma(params.up[m][l] * z, q, -(params.down[m][l] * before));
        before = q;
        q = next;
      }
      out[l * l + l + m] = T(q * power.x);
      if (m > 0) out[l * l + l - m] = T(q * power.y);
    }
    power = next_power(power, x, y);
  }
}

// d (x + iy)^m / dx = m (x + iy)^{m-1}, / dy = i times that.
template <typename T>
kernel void sh_encode_grad(device const T* d_outputs [[buffer(0)]],
                           device const float* directions [[buffer(1)]],
                           device float* directions_gradient [[buffer(2)]],
                           constant ShEncodeParams& params [[buffer(3)]],
                           uint2 position [[thread_position_in_grid]],
                           uint2 threads [[threads_per_grid]]) {
  const ulong i = flat_index(position, threads);
  if (i >= params.n_points) return;
  const float x = directions[3 * i], y = directions[3 * i + 1], z = directions[3 * i + 2];
  device const T* g = d_outputs + i * (kDegree * kDegree);
  float3 sum = float3(0.0f);
  float2 power = float2(1.0f, 0.0f), before_power = float2(0.0f);  // m (x + iy)^{m-1}
  for (uint m = 0; m < kDegree; ++m) {
    float before = 0.0f, q = params.first[m];
    float slope_before = 0.0f, slope = 0.0f;  // dq / dz
    float2 sum_q = float2(0.0f);              // sum over l of g q
    for (uint l = m; l < kDegree; ++l) {
      if (l > m) {
        const float up = params.up[m][l], down = params.down[m][l];
        const float next = fma(up * z, q, -(down * before));
        const float next_slope = fma(up, fma(z, slope, q), -(down * slope_before));
        before = q;
        q = next;
        slope_before = slope;
        slope = next_slope;
      }
      const float g_re = float(g[l * l + l + m]);
      float along = g_re * power.x;
      sum_q.x = fma(g_re, q, sum_q.x);
      if (m > 0) {
        const float g_im = float(g[l * l + l - m]);
        along = fma(g_im, power.y, along);
        sum_q.y = fma(g_im, q, sum_q.y);
      }
      sum.z = fma(slope, along, sum.z);
    }
    if (m > 0) {
      sum.x = fma(sum_q.x, before_power.x, fma(sum_q.y, before_power.y, sum.x));
      sum.y = fma(sum_q.y, before_power.x, fma(-sum_q.x, before_power.y, sum.y));
    }
    before_power = float(m + 1) * power;
    power = next_power(power, x, y);
  }
  directions_gradient[3 * i] = sum.x;
  directions_gradient[3 * i + 1] = sum.y;
  directions_gradient[3 * i + 2] = sum.z;
}

#define INSTANTIATE_TYPE(T)                         \
  INSTANTIATE_KERNEL("sh_encode_" #T, sh_encode, T) \
  INSTANTIATE_KERNEL("sh_encode_grad_" #T, sh_encode_grad, T)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
INSTANTIATE_TYPE(bfloat)
