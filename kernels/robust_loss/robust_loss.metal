// RobustLoss: the loss and its derivatives in one pass over memory. robust_loss_params.h has the
// formulas; names are those of the CPU's robust_loss_simd.cc.

#include <metal_stdlib>

#include "kernels/losses/row_means.metal.h"
#include "kernels/msl/exp_log.h"
#include "kernels/msl/grid.h"
#include "kernels/msl/instantiate.h"
#include "kernels/robust_loss/robust_loss_params.h"

using namespace metal;

// (y e^y - e^y + 1) / y^2: the sum of (n + 1) / (n + 2)! y^n where y is small.
inline float robust_psi(float y, float exp_y, float expm1_y) {
  if (!(fabs(y) < 0.5f)) return fma(y, exp_y, -expm1_y) / (y * y);
  float series = 8.0f / 362880.0f;
  series = fma(series, y, 7.0f / 40320.0f);
  series = fma(series, y, 6.0f / 5040.0f);
  series = fma(series, y, 5.0f / 720.0f);
  series = fma(series, y, 4.0f / 120.0f);
  series = fma(series, y, 3.0f / 24.0f);
  series = fma(series, y, 2.0f / 6.0f);
  return fma(series, y, 0.5f);
}

// d rho / d alpha for small z: the terms z^3 and on of the series of rho, with the product
// Q_n = (a - 2) ... (a - n + 1), a = alpha / 2, and its derivative carried along.
inline float robust_alpha_series(float z, float b, float alpha, float s) {
  const float a = 0.5f * alpha, s_per_b = s / b, u = z / b;
  float q = a - 2.0f, q_slope = 0.5f;
  float power = z * z * (u * (1.0f / 6.0f));  // z^n b^(2-n) / n! = z^2 u^(n-2) / n!
  float sum = 0.0f;
  for (int n = 3; n < 3 + ROBUST_LOSS_SERIES_TERMS; ++n) {
    sum = fma(power, fma(float(n - 2) * s_per_b, q, q_slope), sum);
    const float factor = a - float(n);
    q_slope = fma(q_slope, factor, 0.5f * q);
    q = q * factor;
    power = power * (u / float(n + 1));
  }
  return -0.25f * s * sum;
}

// What the loss and its slopes share.
struct RobustTerms {
  float z, b, u, log1p_u, y, expm1_y;
};

inline float robust_slope_alpha(RobustTerms t, float alpha, float loss) {
  if (t.z != t.z || alpha != alpha) return t.z * alpha;  // NaN
  if (alpha == 2.0f || fabs(alpha) >= ROBUST_LOSS_INFINITE) return 0.0f;
  const float s = alpha < 2.0f ? 1.0f : -1.0f, b = t.b, log_u = t.log1p_u;
  if (t.z <= ROBUST_LOSS_SERIES_Z && t.u <= ROBUST_LOSS_SERIES_U) {
    return robust_alpha_series(t.z, b, alpha, s);
  }
  const float exp_y = precise::exp(t.y);
  if (fabs(alpha) < 1.0f) {
    const float w = t.z / (b + t.z);
    return 0.5f * fma(robust_psi(t.y, exp_y, t.expm1_y), log_u * log_u, -(exp_y * (log_u - w)));
  }
  const float half_per_alpha = 0.5f / alpha;
  if (alpha < 0.0f) {
    float bracket = fma(-(alpha + 2.0f), 1.0f / alpha, log_u) * half_per_alpha;
    bracket = bracket - 0.5f / (b + t.z);
    return fma(b * exp_y, bracket, 8.0f * (half_per_alpha * half_per_alpha));
  }
  const float half_log = 0.5f * log_u;
  float slope = loss * fma(-(alpha + 2.0f), half_per_alpha, half_log);
  slope = fma(b * log_u, half_per_alpha, slope);
  const float rise = precise_expm1(s * b * half_log);
  return fma(0.5f * s, fma(alpha, loss, b) * rise / (b + t.z), slope);
}

// rho, and d rho / d x over x / c^2.
struct RobustValue {
  float loss, factor;
};

inline RobustValue robust_value(RobustTerms t, float alpha) {
  RobustValue v;
  if (t.z != t.z) {
    v.loss = v.factor = t.z;
  } else if (alpha == 2.0f) {
    v.loss = 0.5f * t.z;
    v.factor = 1.0f;
  } else if (fabs(alpha) >= ROBUST_LOSS_INFINITE) {
    const float half_z = copysign(0.5f * t.z, alpha);
    v.loss = copysign(1.0f, alpha) * precise_expm1(half_z);
    v.factor = precise::exp(half_z);
  } else {
    // y below 2^-26: e^y - 1 is y to all digits.
    const bool vanishes = fabs(t.y) < 1e-8f || alpha == 0.0f;
    v.loss = vanishes ? 0.5f * t.b * t.log1p_u : t.b / alpha * t.expm1_y;
    v.factor = precise::exp(fma(0.5f, alpha, -1.0f) * t.log1p_u);
  }
  return v;
}

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
    const float per_scale = 1.0f / scale, t = x * per_scale;
    RobustTerms terms;
    terms.z = t * t;
    terms.b = fabs(alpha - 2.0f);
    terms.u = terms.z / terms.b;
    terms.log1p_u = precise_log1p(terms.u);
    terms.y = 0.5f * alpha * terms.log1p_u;
    terms.expm1_y = precise_expm1(terms.y);
    const RobustValue value = robust_value(terms, alpha);
    const float slope = t * per_scale * value.factor;
    careful_add(sum, value.loss);
    slopes[i] = T(slope * rows.weight);
    if (kParameters) {
      slopes_scale[i] = T(-(t * slope) * rows.weight);
      slopes_alpha[i] = T(robust_slope_alpha(terms, alpha, value.loss) * rows.weight);
    }
  }
  store_row_part(rows, at, sum, losses, parts);
}

#define INSTANTIATE_TYPE(T)                                    \
  INSTANTIATE_KERNEL("robust_loss_" #T, robust_loss, T, false) \
  INSTANTIATE_KERNEL("robust_loss_parameters_" #T, robust_loss, T, true)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
INSTANTIATE_TYPE(bfloat)
