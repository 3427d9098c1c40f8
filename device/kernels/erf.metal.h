// The error function, within three units in the last place of float.

#ifndef METAL_OPS_DEVICE_KERNELS_ERF_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_ERF_METAL_H_

#include <metal_stdlib>

// A polynomial below 1, fitted to a relative error of 1.3e-9. From there on 1 - p(x)^-8, whose polynomial is fitted to
// 1.2e-8 of erf: a root of the tail has few terms, and takes no exponential function; the tail is less than a fifth of
// the result, and so is its rounding. Where p^8 is too large for a float, erf is 1.
inline float error_function(float x) {
  const float square = x * x, size = metal::abs(x);
  float series = 7.85390657e-05f;
  series = metal::fma(series, square, -0.000801020826f);
  series = metal::fma(series, square, 0.00518832961f);
  series = metal::fma(series, square, -0.0268538129f);
  series = metal::fma(series, square, 0.112835854f);
  series = metal::fma(series, square, -0.37612626f);
  series = metal::fma(series, square, 1.12837911f);
  float root = 0.000543666887f;
  root = metal::fma(root, size, -0.00400215667f);
  root = metal::fma(root, size, 0.0177507158f);
  root = metal::fma(root, size, -0.0330309421f);
  root = metal::fma(root, size, 0.0737360716f);
  root = metal::fma(root, size, 0.0494172350f);
  root = metal::fma(root, size, 0.159210533f);
  root = metal::fma(root, size, 0.996486962f);
  const float second = root * root, fourth = second * second;
  const float tail = 1.0f / (fourth * fourth);
  return size < 1.0f ? x * series : metal::copysign(1.0f - tail, x);
}

#endif  // METAL_OPS_DEVICE_KERNELS_ERF_METAL_H_
