// The functions of formulas that shaders and CPU kernels share: templates over the value type,
// float here. kernels/simd/vector-inl.h has the same functions for vectors.

#ifndef METAL_OPS_KERNELS_MSL_FORMULA_H_
#define METAL_OPS_KERNELS_MSL_FORMULA_H_

#include <metal_stdlib>

#include "kernels/msl/both.h"
#include "kernels/msl/exp_log.h"

#define METAL_OPS_FORMULA inline

// Where no lane of a vector takes a branch, it is skipped.
inline bool any_of(bool condition) { return condition; }
// a b - c, c - a b
inline float fms(float a, float b, float c) { return metal::fma(a, b, -c); }
inline float exact_fms(float a, float b, float c) { return metal::fma(a, b, -c); }
inline float fnma(float a, float b, float c) { return metal::fma(-a, b, c); }
inline float precise_exp(float x) { return metal::precise::exp(x); }
inline float precise_log(float x) { return metal::precise::log(x); }

#endif  // METAL_OPS_KERNELS_MSL_FORMULA_H_
