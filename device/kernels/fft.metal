// Fourier transforms of any length: Stockham's passes of radix 2 to 7, and Bluestein's way to one of them
// for lengths that have other factors. Complex numbers are float2.

#include <metal_stdlib>

#include "device/kernels/complex.metal.h"
#include "device/kernels/fft_params.h"
#include "kernels/msl/instantiate.h"

#if defined(__METAL_CPU__)
#include "device/kernels/fft_blocks.metal.h"
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// e^(sign 2 pi i k / n), from the first eighth of the circle: there the angle is exact.
inline float2 root_of_one(uint k, uint n, float sign) {
  const bool lower = 2 * ulong(k) > n;
  ulong half_turns = 2 * ulong(lower ? n - k : k);  // by n
  const bool left = 2 * half_turns > n;
  if (left) half_turns = n - half_turns;
  const bool steep = 4 * half_turns > n;
  const float angle =
      steep ? float(n - 2 * half_turns) / float(2 * ulong(n)) : float(half_turns) / float(n);
  const float s = sinpi(angle), c = cospi(angle);
  const float x = steep ? s : c, y = steep ? c : s;
  return float2(left ? -x : x, lower ? -sign * y : sign * y);
}

// Grid: n.
kernel void fft_roots(device float2* roots [[buffer(0)]], constant uint& n [[buffer(1)]],
                      constant float& sign [[buffer(2)]], uint k [[thread_position_in_grid]]) {
  roots[k] = root_of_one(k, n, sign);
}

// The groups of a pass: `from` is where the first of a group's points is, `to` where its first result
// goes.
template <uint R>
inline void transform_group(device const float2* in, device float2* out, device const float2* roots,
                            float sign, constant FftStage& p, ulong from, ulong to, uint group) {
  float2 x[R], y[R];
  for (uint j = 0; j < R; ++j) x[j] = in[from + ulong(j) * p.points];
  if (R == 2) {
    y[0] = x[0] + x[1];
    y[1] = x[0] - x[1];
  } else if (R == 4) {
    const float2 a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = x[1] - x[3];
    const float2 turned = float2(-sign * d.y, sign * d.x);
    y[0] = a + c;
    y[1] = b + turned;
    y[2] = a - c;
    y[3] = b - turned;
  } else {
    float2 w[R];
    for (uint j = 0; j < R; ++j) w[j] = roots[j * p.roots_part];
    for (uint k = 0; k < R; ++k) {
      y[k] = x[0];
      for (uint j = 1; j < R; ++j) y[k] += times(x[j], w[j * k % R]);
    }
  }
  out[to] = y[0] * p.scale;
  for (uint k = 1; k < R; ++k) {
    out[to + ulong(k) * p.together] = times(y[k], roots[ulong(group) * k * p.roots_step]) * p.scale;
  }
}

// Grid: (points, outer).
template <uint R>
kernel void fft_stage(device const float2* in [[buffer(0)]], device float2* out [[buffer(1)]],
                      device const float2* roots [[buffer(2)]], constant float& sign [[buffer(3)]],
                      constant FftStage& p [[buffer(4)]],
                      uint2 position [[thread_position_in_grid]]) {
  const ulong from = ulong(position.y) * (ulong(p.points) * R) + position.x;
  const uint group = position.x / p.together;
  transform_group<R>(in, out, roots, sign, p, from, from + ulong(group) * p.together * (R - 1),
                     group);
}
// The same where many have the same factors, one after the other. Grid: (together, groups, outer).
template <uint R>
kernel void fft_rows(device const float2* in [[buffer(0)]], device float2* out [[buffer(1)]],
                     device const float2* roots [[buffer(2)]], constant float& sign [[buffer(3)]],
                     constant FftStage& p [[buffer(4)]],
                     uint3 position [[thread_position_in_grid]]) {
  const uint group = position.y;
  const ulong from =
      ulong(position.z) * (ulong(p.points) * R) + ulong(group) * p.together + position.x;
  transform_group<R>(in, out, roots, sign, p, from, from + ulong(group) * p.together * (R - 1),
                     group);
}
INSTANTIATE_KERNEL("fft_stage_2", fft_stage, 2)
INSTANTIATE_KERNEL("fft_rows_2", fft_rows, 2)
INSTANTIATE_KERNEL("fft_stage_3", fft_stage, 3)
INSTANTIATE_KERNEL("fft_rows_3", fft_rows, 3)
INSTANTIATE_KERNEL("fft_stage_4", fft_stage, 4)
INSTANTIATE_KERNEL("fft_rows_4", fft_rows, 4)
INSTANTIATE_KERNEL("fft_stage_5", fft_stage, 5)
INSTANTIATE_KERNEL("fft_rows_5", fft_rows, 5)
INSTANTIATE_KERNEL("fft_stage_7", fft_stage, 7)
INSTANTIATE_KERNEL("fft_rows_7", fft_rows, 7)

// ---- other lengths: jk = (j^2 + k^2 - (k - j)^2) / 2 makes a transform a convolution --------------

// e^(sign pi i k^2 / n)
inline float2 chirp(uint k, uint n, float sign) {
  return root_of_one(uint(ulong(k) * k % (2 * ulong(n))), 2 * n, sign);
}
// Grid: padded.
kernel void fft_chirp(device float2* out [[buffer(0)]], constant float& sign [[buffer(1)]],
                      constant ChirpParams& p [[buffer(2)]], uint k [[thread_position_in_grid]]) {
  const uint distance = min(k, p.padded - k);
  out[k] = distance < p.length ? chirp(distance, p.length, -sign) : float2(0.0f);
}
// Grid of these: (inner, padded or length, outer).
kernel void fft_chirp_in(device const float2* in [[buffer(0)]], device float2* out [[buffer(1)]],
                         constant float& sign [[buffer(2)]], constant ChirpParams& p [[buffer(3)]],
                         uint3 position [[thread_position_in_grid]]) {
  const uint k = position.y;
  float2 value = float2(0.0f);
  if (k < p.length) {
    value = times(in[(ulong(position.z) * p.length + k) * p.inner + position.x],
                  chirp(k, p.length, sign));
  }
  out[(ulong(position.z) * p.padded + k) * p.inner + position.x] = value;
}
kernel void fft_chirp_times(device float2* series [[buffer(0)]],
                            device const float2* factors [[buffer(1)]],
                            constant ChirpParams& p [[buffer(2)]],
                            uint3 position [[thread_position_in_grid]]) {
  const ulong at = (ulong(position.z) * p.padded + position.y) * p.inner + position.x;
  series[at] = times(series[at], factors[position.y]);
}
kernel void fft_chirp_out(device const float2* in [[buffer(0)]], device float2* out [[buffer(1)]],
                          constant float& sign [[buffer(2)]], constant ChirpParams& p [[buffer(3)]],
                          uint3 position [[thread_position_in_grid]]) {
  const uint k = position.y;
  out[(ulong(position.z) * p.length + k) * p.inner + position.x] =
      times(in[(ulong(position.z) * p.padded + k) * p.inner + position.x],
            chirp(k, p.length, sign)) *
      p.scale;
}

// ---- what real transforms read and write ---------------------------------------------------------

inline float2 as_complex(float x) { return float2(x, 0.0f); }
inline float2 as_complex(float2 x) { return x; }

// As far as `in` goes, then zeros. Grid: (out[2], out[1], batch * out[0]).
template <typename T>
kernel void fft_copy(device const T* in [[buffer(0)]], device float2* out [[buffer(1)]],
                     constant FftCopy& p [[buffer(2)]],
                     uint3 position [[thread_position_in_grid]]) {
  const uint batch = position.z / p.out[0], z = position.z % p.out[0];
  float2 value = float2(0.0f);
  if (z < p.in[0] && position.y < p.in[1] && position.x < p.in[2]) {
    value = as_complex(
        in[((ulong(batch) * p.in[0] + z) * p.in[1] + position.y) * p.in[2] + position.x]);
  }
  out[(ulong(position.z) * p.out[1] + position.y) * p.out[2] + position.x] = value;
}
INSTANTIATE_KERNEL("fft_copy_float", fft_copy, float)
INSTANTIATE_KERNEL("fft_copy_complex", fft_copy, float2)

// An even number n of reals is read as n / 2 complex numbers: their transform has those of the even and of the
// odd reals in it, whose symmetries tell them apart. `roots`: the first n / 2 + 1 of those of n.

inline float2 real_out(float2 value, float2 mirrored, float2 root) {
  const float2 even = 0.5f * (value + mirrored), odd = 0.5f * (value - mirrored);
  return even + times(float2(odd.y, -odd.x), root);
}
// A thread has `run` neighbours, which the mirrored ones go past in the other direction. Grid: ((n / 2 + 1) / run,
// rows).
kernel void fft_real_out(device const float2* in [[buffer(0)]], device float2* out [[buffer(1)]],
                         device const float2* roots [[buffer(2)]],
                         constant uint& half_length [[buffer(3)]], constant uint& run [[buffer(4)]],
                         uint2 position [[thread_position_in_grid]]) {
  const uint n = half_length, first = position.x * run;
  device const float2* const row = in + ulong(position.y) * n;
  device float2* const to = out + ulong(position.y) * (n + 1);
  if (first > 0 && first + run <= n) {
    for (uint k = first; k < first + run; ++k) {
      to[k] = real_out(row[k], conjugate(row[n - k]), roots[k]);
    }
  } else {
    for (uint k = first; k < min(first + run, n + 1); ++k) {
      to[k] = real_out(row[k == n ? 0 : k], conjugate(row[k == 0 ? 0 : n - k]), roots[k]);
    }
  }
}
inline float2 real_in(float2 value, float2 mirrored, float2 root) {
  const float2 even = 0.5f * (value + mirrored);
  const float2 odd = times(0.5f * (value - mirrored), root);
  return float2(even.x - odd.y, even.y + odd.x);
}
// The way back; elements without a counterpart are real. Grid: (n / 2 / run, rows).
kernel void fft_real_in(device const float2* half_series [[buffer(0)]],
                        device float2* out [[buffer(1)]], device const float2* roots [[buffer(2)]],
                        constant uint& half_length [[buffer(3)]], constant uint& run [[buffer(4)]],
                        uint2 position [[thread_position_in_grid]]) {
  const uint n = half_length, first = position.x * run;
  device const float2* const row = half_series + ulong(position.y) * (n + 1);
  device float2* const to = out + ulong(position.y) * n;
  if (first > 0 && first + run <= n) {
    for (uint k = first; k < first + run; ++k) {
      to[k] = real_in(row[k], conjugate(row[n - k]), roots[k]);
    }
  } else {
    for (uint k = first; k < min(first + run, n); ++k) {
      float2 value = row[k], mirrored = conjugate(row[n - k]);
      if (k == 0) value.y = mirrored.y = 0.0f;
      to[k] = real_in(value, mirrored, roots[k]);
    }
  }
}

// The whole series of which the first half is given; elements without a counterpart are real. Grid:
// (n, rows).
kernel void fft_hermitian(device const float2* half_series [[buffer(0)]],
                          device float2* out [[buffer(1)]],
                          uint2 position [[thread_position_in_grid]],
                          uint2 grid [[threads_per_grid]]) {
  const uint k = position.x, n = grid.x;
  device const float2* const row = half_series + ulong(position.y) * (n / 2 + 1);
  const float2 value = row[min(k, n - k)];
  const bool alone = k == 0 || 2 * k == n;
  out[ulong(position.y) * n + k] = float2(value.x, alone ? 0.0f : 2 * k > n ? -value.y : value.y);
}
