// Softshrink's formulas, read by host code and shader alike.

#ifndef METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_PARAMS_H_
#define METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_PARAMS_H_

struct Softshrink {
  float lambd;

  // x less its part within [-lambd, lambd]. NaN fails both comparisons and stays NaN.
  float operator()(float x) const {
    const float low = lambd < x ? lambd : x;
    return x - (-lambd > low ? -lambd : low);
  }
};

struct SoftshrinkGrad {
  float lambd;

  float operator()(float g, float x) const { return (x < 0.0f ? -x : x) <= lambd ? 0.0f : g; }
};

#endif  // METAL_OPS_KERNELS_SOFTSHRINK_SOFTSHRINK_PARAMS_H_
