// The functions by which reductions and cumulative sums join elements.

#ifndef METAL_OPS_DEVICE_KERNELS_JOIN_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_JOIN_METAL_H_

#include "device/kernels/complex.metal.h"

// The function for each element first, the one that joins two, and the neutral element.
struct Plain {
  template <typename T>
  static T of(T x) {
    return x;
  }
};
struct Sum : Plain {
  template <typename T>
  static T none() {
    return T(0);
  }
  template <typename T>
  static T join(T a, T b) {
    return T(a + b);
  }
};
struct Prod : Plain {
  template <typename T>
  static T none() {
    return T(1);
  }
  template <typename T>
  static T join(T a, T b) {
    return T(a * b);
  }
};

struct ComplexProd : Plain {
  template <typename T>
  static T none() {
    return float2(1.0f, 0.0f);
  }
  static float2 join(float2 a, float2 b) { return times(a, b); }
};

#endif  // METAL_OPS_DEVICE_KERNELS_JOIN_METAL_H_
