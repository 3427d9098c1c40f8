// Fourier transforms for processors: a thread makes all passes of several series, side by side in a cache.

#ifndef METAL_OPS_DEVICE_KERNELS_FFT_BLOCKS_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_FFT_BLOCKS_METAL_H_

#include <metal_stdlib>

#include "device/kernels/fft_params.h"

using namespace metal;

#define FFT_POINT (2 * FFT_LANES)  // floats

// A pass over FFT_LANES series that lie side by side, [length, 2, FFT_LANES]: a point's real parts before its imaginary
// ones, which in a plane of their own would be in the same sets of a cache. `together`: see FftStage; after the last pass
// (kLast) no factor is left to multiply by.
template <uint R, bool kLast>
inline void block_pass(device const float* in, device float* out, device const float2* roots,
                       float sign, uint length, uint together) {
  const uint points = length / R, groups = points / together;
  float2 part[R];
  for (uint j = 0; j < R; ++j) part[j] = roots[j * points];
  for (uint group = 0; group < groups; ++group) {
    float2 factor[R];
    for (uint k = 0; k < R; ++k) factor[k] = roots[group * k * together];
    for (uint q = 0; q < together; ++q) {
      device const float* const from = in + (group * together + q) * FFT_POINT;
      device float* const to = out + (group * together * R + q) * FFT_POINT;
      float xr[R][FFT_LANES], xi[R][FFT_LANES], yr[R][FFT_LANES], yi[R][FFT_LANES];
      for (uint j = 0; j < R; ++j) {
        for (uint l = 0; l < FFT_LANES; ++l) xr[j][l] = from[j * points * FFT_POINT + l];
        for (uint l = 0; l < FFT_LANES; ++l)
          xi[j][l] = from[j * points * FFT_POINT + FFT_LANES + l];
      }
      if (R == 2) {
        for (uint l = 0; l < FFT_LANES; ++l) {
          yr[0][l] = xr[0][l] + xr[1][l];
          yi[0][l] = xi[0][l] + xi[1][l];
          yr[1][l] = xr[0][l] - xr[1][l];
          yi[1][l] = xi[0][l] - xi[1][l];
        }
      } else if (R == 4) {
        for (uint l = 0; l < FFT_LANES; ++l) {
          const float ar = xr[0][l] + xr[2 % R][l], ai = xi[0][l] + xi[2 % R][l];
          const float br = xr[0][l] - xr[2 % R][l], bi = xi[0][l] - xi[2 % R][l];
          const float cr = xr[1][l] + xr[3 % R][l], ci = xi[1][l] + xi[3 % R][l];
          const float dr = sign * (xr[1][l] - xr[3 % R][l]), di = sign * (xi[1][l] - xi[3 % R][l]);
          yr[0][l] = ar + cr;
          yi[0][l] = ai + ci;
          yr[1][l] = br - di;
          yi[1][l] = bi + dr;
          yr[2 % R][l] = ar - cr;
          yi[2 % R][l] = ai - ci;
          yr[3 % R][l] = br + di;
          yi[3 % R][l] = bi - dr;
        }
      } else {
        for (uint k = 0; k < R; ++k) {
          for (uint l = 0; l < FFT_LANES; ++l) {
            yr[k][l] = xr[0][l];
            yi[k][l] = xi[0][l];
          }
          for (uint j = 1; j < R; ++j) {
            const float2 w = part[j * k % R];
            for (uint l = 0; l < FFT_LANES; ++l) {
              yr[k][l] += xr[j][l] * w.x - xi[j][l] * w.y;
              yi[k][l] += xr[j][l] * w.y + xi[j][l] * w.x;
            }
          }
        }
      }
      for (uint k = 0; k < R; ++k) {
        device float* const at = to + k * together * FFT_POINT;
        if (kLast || k == 0) {
          for (uint l = 0; l < FFT_LANES; ++l) at[l] = yr[k][l];
          for (uint l = 0; l < FFT_LANES; ++l) at[FFT_LANES + l] = yi[k][l];
        } else {
          const float2 w = factor[k];
          for (uint l = 0; l < FFT_LANES; ++l) at[l] = yr[k][l] * w.x - yi[k][l] * w.y;
          for (uint l = 0; l < FFT_LANES; ++l) at[FFT_LANES + l] = yr[k][l] * w.y + yi[k][l] * w.x;
        }
      }
    }
  }
}
template <uint R>
inline void block_pass(device const float* in, device float* out, device const float2* roots,
                       float sign, uint length, uint together) {
  if (together * R == length) {
    block_pass<R, true>(in, out, roots, sign, length, together);
  } else {
    block_pass<R, false>(in, out, roots, sign, length, together);
  }
}

// ---- between complex numbers and lanes: a compiler turns no matrix by vectors of its own accord

typedef float FftRow __attribute__((ext_vector_type(16), aligned(4)));
static_assert(FFT_LANES == 16, "as FftRow has");

// All of vectors a and b, element j of the result being MASK(j) of the two.
#define FFT_SHUFFLE(a, b, MASK)                                                                \
  __builtin_shufflevector(a, b, MASK(0), MASK(1), MASK(2), MASK(3), MASK(4), MASK(5), MASK(6), \
                          MASK(7), MASK(8), MASK(9), MASK(10), MASK(11), MASK(12), MASK(13),   \
                          MASK(14), MASK(15))
#define FFT_UPPER(j) (((j) & kStep) != 0 ? 16 + (j) - kStep : (j))
#define FFT_LOWER(j) (((j) & kStep) != 0 ? 16 + (j) : (j) + kStep)
#define FFT_EVEN(j) (2 * (j))
#define FFT_ODD(j) (2 * (j) + 1)
#define FFT_FIRST(j) ((j) / 2 + 16 * ((j) % 2))
#define FFT_SECOND(j) (8 + (j) / 2 + 16 * ((j) % 2))

template <int kStep>
inline void turn_blocks(thread FftRow (&rows)[16]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if ((i & kStep) != 0) continue;
    const FftRow a = rows[i], b = rows[i + kStep];
    rows[i] = FFT_SHUFFLE(a, b, FFT_UPPER);
    rows[i + kStep] = FFT_SHUFFLE(a, b, FFT_LOWER);
  }
}
inline void turn(thread FftRow (&rows)[16]) {
  turn_blocks<8>(rows);
  turn_blocks<4>(rows);
  turn_blocks<2>(rows);
  turn_blocks<1>(rows);
}

#define FFT_TILE 8  // complex numbers of a cache's line, and of an FftRow

// The first half and one more of the transform of twice `length` reals, of that of their pairs: see real_out.
inline void halves_of_pairs(device const float* in, device float* out, device const float2* roots,
                            uint length) {
  for (uint k = 0; k <= length; ++k) {
    device const float* const value = in + (k == length ? 0 : k) * FFT_POINT;
    device const float* const mirrored = in + (k == 0 ? 0 : length - k) * FFT_POINT;
    device float* const to = out + k * FFT_POINT;
    const float2 root = roots[k];
    for (uint l = 0; l < FFT_LANES; ++l) {
      const float er = 0.5f * (value[l] + mirrored[l]), dr = 0.5f * (value[l] - mirrored[l]);
      const float ei = 0.5f * (value[FFT_LANES + l] - mirrored[FFT_LANES + l]);
      const float di = 0.5f * (value[FFT_LANES + l] + mirrored[FFT_LANES + l]);
      to[l] = er + (di * root.x + dr * root.y);
      to[FFT_LANES + l] = ei + (di * root.y - dr * root.x);
    }
  }
}

// The way back: see real_in.
inline void pairs_of_halves(device const float* in, device float* out, device const float2* roots,
                            uint length) {
  for (uint k = 0; k < length; ++k) {
    device const float* const value = in + k * FFT_POINT;
    device const float* const mirrored = in + (length - k) * FFT_POINT;
    device float* const to = out + k * FFT_POINT;
    const float2 root = roots[k];
    for (uint l = 0; l < FFT_LANES; ++l) {
      const float er = 0.5f * (value[l] + mirrored[l]), dr = 0.5f * (value[l] - mirrored[l]);
      // Elements without a counterpart are real.
      const float vi = k == 0 ? 0.0f : value[FFT_LANES + l];
      const float mi = k == 0 ? 0.0f : mirrored[FFT_LANES + l];
      const float ei = 0.5f * (vi - mi), di = 0.5f * (vi + mi);
      to[l] = er - (dr * root.y + di * root.x);
      to[FFT_LANES + l] = ei + (dr * root.x - di * root.y);
    }
  }
}

// A thread transforms every so many-th block, in `works` [threads, 2, length + 1 or less, 2, FFT_LANES]. Grid: threads.
kernel void fft_blocks(device const float2* in [[buffer(0)]], device float2* out [[buffer(1)]],
                       device const float2* roots [[buffer(2)]], device float* works [[buffer(3)]],
                       constant float& sign [[buffer(4)]], constant FftBlocks& p [[buffer(5)]],
                       device const float2* real_roots [[buffer(6)]],
                       uint position [[thread_position_in_grid]], uint grid [[threads_per_grid]]) {
  const uint points_in = p.length + p.half_in, points_out = p.length + p.half_out;
  const uint work = max(points_in, points_out) * FFT_POINT;
  const ulong from_step = p.lane_step + p.half_in, to_step = p.lane_step + p.half_out;
  for (ulong block = position; block < p.blocks; block += grid) {
    device float* a = works + ulong(position) * 2 * work;
    device float* b = a + work;
    const ulong outer = block / p.across, first = (block - outer * p.across) * FFT_LANES;
    const uint lanes = uint(min(ulong(FFT_LANES), p.lanes - first));
    device const float2* const from = in + outer * p.outer_step + first * from_step;
    device float2* const to = out + outer * p.outer_step + first * to_step;
    // Rows are turned in tiles, of which each line is read once; of columns the lanes are neighbours.
    const bool columns = p.lane_step == 1 && lanes == FFT_LANES;
    const bool rows = !columns && p.step == 1 && lanes == FFT_LANES;
    const uint whole = columns ? p.length : rows ? points_in / FFT_TILE * FFT_TILE : 0;
    if (columns) {
      for (uint point = 0; point < whole; ++point) {
        device const FftRow* const at = (device const FftRow*)(from + point * p.step);
        const FftRow x = at[0], y = at[1];
        *(device FftRow*)(a + point * FFT_POINT) = FFT_SHUFFLE(x, y, FFT_EVEN);
        *(device FftRow*)(a + point * FFT_POINT + FFT_LANES) = FFT_SHUFFLE(x, y, FFT_ODD);
      }
    } else {
      for (uint point = 0; point < whole; point += FFT_TILE) {
        FftRow lines[16];
#pragma unroll
        for (uint l = 0; l < FFT_LANES; ++l) {
          lines[l] = *(device const FftRow*)(from + l * from_step + point);
        }
        turn(lines);
#pragma unroll
        for (uint i = 0; i < 16; ++i) {
          *(device FftRow*)(a + point * FFT_POINT + i * FFT_LANES) = lines[i];
        }
      }
    }
    for (uint point = whole; point < points_in; ++point) {
      float x[FFT_LANES], y[FFT_LANES];
      for (uint l = 0; l < FFT_LANES; ++l) {
        // Lanes behind the last are another's, and are not stored.
        const float2 value = from[point * p.step + min(l, lanes - 1) * from_step];
        x[l] = value.x;
        y[l] = value.y;
      }
      for (uint l = 0; l < FFT_LANES; ++l) a[point * FFT_POINT + l] = x[l];
      for (uint l = 0; l < FFT_LANES; ++l) a[point * FFT_POINT + FFT_LANES + l] = y[l];
    }
    if (p.half_in != 0) {
      pairs_of_halves(a, b, real_roots, p.length);
      device float* const pairs = b;
      b = a;
      a = pairs;
    }
    uint together = 1;
    for (uint pass = 0; pass < p.passes; ++pass) {
      const uint radix = p.radices[pass];
      if (radix == 4) {
        block_pass<4>(a, b, roots, sign, p.length, together);
      } else if (radix == 2) {
        block_pass<2>(a, b, roots, sign, p.length, together);
      } else if (radix == 3) {
        block_pass<3>(a, b, roots, sign, p.length, together);
      } else if (radix == 5) {
        block_pass<5>(a, b, roots, sign, p.length, together);
      } else {
        block_pass<7>(a, b, roots, sign, p.length, together);
      }
      device float* const result = b;
      b = a;
      a = result;
      together *= radix;
    }
    if (p.half_out != 0) {
      halves_of_pairs(a, b, real_roots, p.length);
      a = b;
    }
    const uint turned = rows ? points_out / FFT_TILE * FFT_TILE : whole;
    if (columns) {
      for (uint point = 0; point < whole; ++point) {
        const FftRow x = *(device const FftRow*)(a + point * FFT_POINT) * p.scale,
                     y = *(device const FftRow*)(a + point * FFT_POINT + FFT_LANES) * p.scale;
        device FftRow* const at = (device FftRow*)(to + point * p.step);
        at[0] = FFT_SHUFFLE(x, y, FFT_FIRST);
        at[1] = FFT_SHUFFLE(x, y, FFT_SECOND);
      }
    } else {
      for (uint point = 0; point < turned; point += FFT_TILE) {
        FftRow lines[16];
#pragma unroll
        for (uint i = 0; i < 16; ++i) {
          lines[i] = *(device const FftRow*)(a + point * FFT_POINT + i * FFT_LANES) * p.scale;
        }
        turn(lines);
#pragma unroll
        for (uint l = 0; l < FFT_LANES; ++l) {
          *(device FftRow*)(to + l * to_step + point) = lines[l];
        }
      }
    }
    for (uint point = turned; point < points_out; ++point) {
      float x[FFT_LANES], y[FFT_LANES];
      for (uint l = 0; l < FFT_LANES; ++l) x[l] = a[point * FFT_POINT + l] * p.scale;
      for (uint l = 0; l < FFT_LANES; ++l) y[l] = a[point * FFT_POINT + FFT_LANES + l] * p.scale;
      if (lanes == FFT_LANES) {
        for (uint l = 0; l < FFT_LANES; ++l) {
          to[point * p.step + l * to_step] = float2(x[l], y[l]);
        }
      } else {
        for (uint l = 0; l < lanes; ++l) to[point * p.step + l * to_step] = float2(x[l], y[l]);
      }
    }
  }
}

#endif  // METAL_OPS_DEVICE_KERNELS_FFT_BLOCKS_METAL_H_
