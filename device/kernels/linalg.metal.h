// Rows of matrices, real or complex, that the shaders of linalg.metal and eigen.metal share.

#ifndef METAL_OPS_DEVICE_KERNELS_LINALG_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_LINALG_METAL_H_

#include <metal_stdlib>

#include "device/kernels/complex.metal.h"
#include "device/kernels/linalg_params.h"

using namespace metal;

// Sums that do not wait for each other.
#define DOT_LANES 32
// Stored, and added as many as there are: a sum of known terms would have them one or two at a time before.
inline float fold_lanes(thread const float (&sums)[DOT_LANES], uint n) {
  float folded[8], sum = 0.0f;
  for (uint k = 0; k < 8; ++k) folded[k] = (sums[k] + sums[k + 8]) + (sums[k + 16] + sums[k + 24]);
  for (uint k = 0; k < min(n, 8u); ++k) sum += folded[k];
  return sum;
}
inline float dot_rows(device const float* a, device const float* b, uint n) {
  float sums[DOT_LANES];
  for (uint k = 0; k < DOT_LANES; ++k) sums[k] = 0.0f;
  uint i = 0;
  for (; i + DOT_LANES <= n; i += DOT_LANES) {
    for (uint k = 0; k < DOT_LANES; ++k) sums[k] += a[i + k] * b[i + k];
  }
  float sum = fold_lanes(sums, n);
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

#if defined(__METAL_CPU__)
// By a processor's vectors: of so many rows at once, so that their common factor is read once. Each has the bits that
// dot_rows and add_row give it.
#define LINALG_ROWS 4
typedef float LinalgVector __attribute__((ext_vector_type(16), aligned(4)));
inline void dot_many(device const float* rows, ulong apart, device const float* b, uint n,
                     thread float (&dots)[LINALG_ROWS]) {
  LinalgVector low[LINALG_ROWS], high[LINALG_ROWS];
#pragma unroll
  for (uint j = 0; j < LINALG_ROWS; ++j) low[j] = high[j] = LinalgVector(0.0f);
  uint i = 0;
  for (; i + DOT_LANES <= n; i += DOT_LANES) {
    const LinalgVector x = *(device const LinalgVector*)(b + i),
                       y = *(device const LinalgVector*)(b + i + 16);
#pragma unroll
    for (uint j = 0; j < LINALG_ROWS; ++j) {
      low[j] += *(device const LinalgVector*)(rows + j * apart + i) * x;
      high[j] += *(device const LinalgVector*)(rows + j * apart + i + 16) * y;
    }
  }
#pragma unroll
  for (uint j = 0; j < LINALG_ROWS; ++j) {
    float sums[DOT_LANES];
    *(thread LinalgVector*)sums = low[j];
    *(thread LinalgVector*)(sums + 16) = high[j];
    dots[j] = fold_lanes(sums, n);
  }
  for (; i < n; ++i) {
#pragma unroll
    for (uint j = 0; j < LINALG_ROWS; ++j) dots[j] += rows[j * apart + i] * b[i];
  }
}
// In vectors that begin where a cache's lines do, except for the first and the last: the elements that these share with
// others are the same in both.
inline void add_many(device float* rows, ulong apart, device const float* from,
                     thread const float (&factors)[LINALG_ROWS], uint n) {
  if (n < 16) {
    for (uint i = 0; i < n; ++i) {
#pragma unroll
      for (uint j = 0; j < LINALG_ROWS; ++j) rows[j * apart + i] += factors[j] * from[i];
    }
    return;
  }
  LinalgVector first[LINALG_ROWS], last[LINALG_ROWS];
#pragma unroll
  for (uint j = 0; j < LINALG_ROWS; ++j) {
    device float* const row = rows + j * apart;
    first[j] = *(device const LinalgVector*)row + factors[j] * *(device const LinalgVector*)from;
    last[j] = *(device const LinalgVector*)(row + n - 16) +
              factors[j] * *(device const LinalgVector*)(from + n - 16);
  }
  const uint begin = -uint(reinterpret_cast<ulong>(rows) >> 2) & 15;
  for (uint i = begin; i + 16 <= n; i += 16) {
    const LinalgVector x = *(device const LinalgVector*)(from + i);
#pragma unroll
    for (uint j = 0; j < LINALG_ROWS; ++j) {
      *(device LinalgVector*)(rows + j * apart + i) += factors[j] * x;
    }
  }
#pragma unroll
  for (uint j = 0; j < LINALG_ROWS; ++j) {
    *(device LinalgVector*)(rows + j * apart) = first[j];
    *(device LinalgVector*)(rows + j * apart + n - 16) = last[j];
  }
}
// to -= factors[0] * rows[0], then those of the other rows; how many elements it does.
inline uint take_many(device float* to, thread const float (&factors)[LINALG_PANEL],
                      device const float* rows, ulong apart, uint n) {
  uint i = 0;
  for (; i + 16 <= n; i += 16) {
    LinalgVector left = *(device const LinalgVector*)(to + i);
#pragma unroll
    for (uint k = 0; k < LINALG_PANEL; ++k) {
      left -= factors[k] * *(device const LinalgVector*)(rows + k * apart + i);
    }
    *(device LinalgVector*)(to + i) = left;
  }
  return i;
}
inline uint take_many(device float2*, thread const float2 (&)[LINALG_PANEL], device const float2*,
                      ulong, uint) {
  return 0;
}
// The first of `count` rows that this does with; how many.
inline uint reflect_many(device const float* column, float tau, device float* rows, uint count,
                         ulong apart, uint length) {
  uint done = 0;
  for (; done + LINALG_ROWS <= count; done += LINALG_ROWS) {
    device float* const row = rows + done * apart;
    float sums[LINALG_ROWS];
    dot_many(row + 1, apart, column + 1, length - 1, sums);
#pragma unroll
    for (uint j = 0; j < LINALG_ROWS; ++j) {
      sums[j] = tau * (row[j * apart] + sums[j]);
      row[j * apart] -= sums[j];
      sums[j] = -sums[j];
    }
    add_many(row + 1, apart, column + 1, sums, length - 1);
  }
  return done;
}
inline uint reflect_many(device const float2*, float2, device float2*, uint, ulong, uint) {
  return 0;
}
#endif

// The reflection 1 - tau v v^H of a column v, whose first element is known to be 1, on `rows` rows of `length`, `apart`
// elements from each other.
template <typename T>
inline void reflect_rows(device const T* column, T tau, device T* rows, uint count, ulong apart,
                         uint length) {
  uint j = 0;
#if defined(__METAL_CPU__)
  j = reflect_many(column, tau, rows, count, apart, length);
#endif
  for (; j < count; ++j) {
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
