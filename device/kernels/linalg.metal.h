// Rows of matrices, real or complex, that the shaders of linalg.metal and eigen.metal share.

#ifndef METAL_OPS_DEVICE_KERNELS_LINALG_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_LINALG_METAL_H_

#include <metal_stdlib>

#include "device/kernels/complex.metal.h"
#include "device/kernels/linalg_params.h"

using namespace metal;

// Sums that do not wait for each other.
#define DOT_LANES 32
inline float dot_rows(device const float* a, device const float* b, uint n) {
  float sums[DOT_LANES];
  for (uint k = 0; k < DOT_LANES; ++k) sums[k] = 0.0f;
  uint i = 0;
  for (; i + DOT_LANES <= n; i += DOT_LANES) {
    for (uint k = 0; k < DOT_LANES; ++k) sums[k] += a[i + k] * b[i + k];
  }
  // Stored, and added as many as there are: a sum of known terms would have them one or two at a time before.
  float folded[8], sum = 0.0f;
  for (uint k = 0; k < 8; ++k) folded[k] = (sums[k] + sums[k + 8]) + (sums[k + 16] + sums[k + 24]);
  for (uint k = 0; k < min(n, 8u); ++k) sum += folded[k];
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
// a times the conjugate of b.
inline float2 dot_rows(device const float2* a, device const float2* b, uint n) {
  float2 sum = float2(0.0f);
  for (uint i = 0; i < n; ++i) sum += times(a[i], conjugate(b[i]));
  return sum;
}
// to += factor * from
inline void add_row(device float* to, device const float* from, float factor, uint n) {
  for (uint i = 0; i < n; ++i) to[i] += factor * from[i];
}
inline void add_row(device float2* to, device const float2* from, float2 factor, uint n) {
  for (uint i = 0; i < n; ++i) to[i] += times(factor, from[i]);
}

inline float real_part(float x) { return x; }
inline float real_part(float2 x) { return x.x; }
inline float imaginary_part(float) { return 0.0f; }
inline float imaginary_part(float2 x) { return x.y; }
template <typename T>
inline T from_parts(float real, float imaginary = 0.0f);
template <>
inline float from_parts<float>(float real, float) {
  return real;
}
template <>
inline float2 from_parts<float2>(float real, float imaginary) {
  return float2(real, imaginary);
}

// The reflection 1 - tau v v^H of a column v, whose first element is known to be 1, on `rows` rows of `length`, `apart`
// elements from each other.
template <typename T>
inline void reflect_rows(device const T* column, T tau, device T* rows, uint count, ulong apart,
                         uint length) {
  for (uint j = 0; j < count; ++j) {
    device T* const row = rows + j * apart;
    const T sum = times(tau, row[0] + dot_rows(row + 1, column + 1, length - 1));
    row[0] -= sum;
    add_row(row + 1, column + 1, -sum, length - 1);
  }
}

// Makes v of a column and returns tau: the conjugated transpose of the reflection leaves `beta`, which is real, of the
// first element and nothing of the others. v[0], which is 1, is not written.
template <typename T>
inline T make_reflection(device T* column, uint length, thread float& beta) {
  const float tail = real_part(dot_rows(column + 1, column + 1, length - 1));
  const T head = column[0];
  const float real = real_part(head), other = imaginary_part(head);
  beta = real;
  if (!(tail > 0.0f) && other == 0.0f) return T(0);
  const float norm = sqrt(real * real + other * other + tail);
  beta = real >= 0.0f ? -norm : norm;
  const T divisor = head - from_parts<T>(beta);
  for (uint i = 1; i < length; ++i) column[i] = over(column[i], divisor);
  return -divisor / beta;
}

#endif  // METAL_OPS_DEVICE_KERNELS_LINALG_METAL_H_
