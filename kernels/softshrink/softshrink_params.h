// Softshrink's formulas and parameters, read by host code and shader alike.

#ifndef METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_PARAMS_H_
#define METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct SoftshrinkParams {
  uint64_t n_elements;
  float lambda;
  uint32_t reserved;
};
static_assert(sizeof(SoftshrinkParams) == 16, "host and shader must agree");

// x less what lies within [-lambda, lambda] of it. NaN fails both comparisons and stays NaN.
inline float SoftshrinkValue(float x, float lambda) {
  const float low = lambda < x ? lambda : x;
  return x - (-lambda > low ? -lambda : low);
}

inline float SoftshrinkGradient(float g, float x, float lambda) {
  const float size = x < 0.0f ? -x : x;
  return size <= lambda ? 0.0f : g;
}

#endif  // METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_PARAMS_H_
