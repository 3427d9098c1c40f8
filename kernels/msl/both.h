// For headers with formulas that the host's C++ compiler and the shader compiler both read: address
// spaces that C++ does not have, and the few functions of which the two libraries' signatures
// differ.
//
//   inline float first(METAL_OPS_DEVICE const float* x) { return both::floor(x[0]); }

#ifndef METAL_OPS_KERNELS_MSL_BOTH_H_
#define METAL_OPS_KERNELS_MSL_BOTH_H_

#if defined(__METAL_VERSION__)

#include <metal_stdlib>

#define METAL_OPS_DEVICE device
#define METAL_OPS_CONSTANT constant
#define METAL_OPS_THREAD thread

namespace both {

inline float fabs(float x) { return metal::fabs(x); }
inline float floor(float x) { return metal::floor(x); }
inline float min(float x, float y) { return metal::min(x, y); }
inline float max(float x, float y) { return metal::max(x, y); }
inline float ldexp(float x, int exponent) { return metal::ldexp(x, exponent); }
inline float frexp(float x, thread int& exponent) { return metal::frexp(x, exponent); }
inline bool isfinite(float x) { return metal::isfinite(x); }

}  // namespace both

#else

#include <stdint.h>

#include <algorithm>
#include <cmath>

#define METAL_OPS_DEVICE
#define METAL_OPS_CONSTANT
#define METAL_OPS_THREAD

namespace both {

inline float fabs(float x) { return std::fabs(x); }
inline float floor(float x) { return std::floor(x); }
inline float min(float x, float y) { return std::min(x, y); }
inline float max(float x, float y) { return std::max(x, y); }
inline float ldexp(float x, int exponent) { return std::ldexp(x, exponent); }
inline float frexp(float x, int& exponent) { return std::frexp(x, &exponent); }
inline bool isfinite(float x) { return std::isfinite(x); }

}  // namespace both

#endif

#endif  // METAL_OPS_KERNELS_MSL_BOTH_H_
