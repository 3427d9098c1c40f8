// The shaders of MetalDynamicMatMul.

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/quantized_matmul/quantized_row.metal.h"

using namespace metal;

// A row of x as integers from -127 to 127, and the value of one unit: NaN where not all of x is
// finite. Grid: 32, a simdgroup, x rows.
template <typename T>
[[kernel]] void dynamic_rows(device const T* x [[buffer(0)]], device char* q [[buffer(1)]],
                             device float* steps [[buffer(2)]],
                             constant QuantizedParams& p [[buffer(3)]],
                             uint2 position [[thread_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]]) {
  const long row = long(position.y) * p.inputs;
  uint greatest = 0;  // the bits of |x|, in whose order NaN comes last
  for (long i = lane; i < p.inputs; i += 32) {
    greatest = max(greatest, as_type<uint>(float(x[row + i])) & 0x7fffffffu);
  }
  greatest = simd_max(greatest);
  const float most = as_type<float>(greatest);
  const bool finite = greatest < 0x7f800000u, counts = finite && most >= QUANTIZED_LEAST;
  const float by = counts ? 127.0f / most : 0.0f;
  for (long i = lane; i < p.inputs; i += 32) {
    q[row + i] = counts ? char(rint(float(x[row + i]) * by)) : char(0);
  }
  if (lane == 0) {
    steps[position.y] = counts ? most / 127.0f : finite ? 0.0f : as_type<float>(0x7fc00000u);
  }
}

// An output of a few rows, by a simdgroup. Grid: 32 x outputs x tiles of rows.
template <typename T, typename S, int kBits, int kRows>
[[kernel]] void dynamic_products(device const char* q [[buffer(0)]],
                                 device const uchar* codes [[buffer(1)]],
                                 device const S* scales [[buffer(2)]],
                                 device const S* minima [[buffer(3)]],
                                 device const float* steps [[buffer(4)]], device T* y [[buffer(5)]],
                                 constant QuantizedParams& p [[buffer(6)]],
                                 uint3 position [[thread_position_in_grid]],
                                 uint lane [[thread_index_in_simdgroup]]) {
  const QuantizedRow<S> row(p, codes, scales, minima, position.y);
  const long first = long(position.z) * kRows;
  const int middle = p.use_minima != 0 ? 0 : int(p.middle);
  long row_at[kRows];
  for (int r = 0; r < kRows; ++r) row_at[r] = min(first + r, p.rows - 1) * p.inputs;
  float sums[kRows] = {};
  int terms[kRows] = {}, of_x[kRows] = {};
  long group = long(lane) * 8 / max(p.block, 1l);
  uint step = 0;
  for (long at = long(lane) * 8; at < p.inputs; at += 256) {
    const long of_block = at / p.block;
    // A lane's sums of so many products of 255 and 127 fit.
    if (of_block != group || ++step == 4096) {
      const float scale = row.scale(group),
                  minimum = p.use_minima != 0 ? row.minimum(group, scale) : 0.0f;
      for (int r = 0; r < kRows; ++r) {
        sums[r] = fma(float(terms[r]), scale, fma(float(of_x[r]), minimum, sums[r]));
        terms[r] = of_x[r] = 0;
      }
      group = of_block;
      step = 0;
    }
    const int n = int(min(8l, p.inputs - at));
    for (int i = 0; i < n; ++i) {
      const long k = at + i;
      const int code = (kBits == 8 ? int(row.codes[k]) : int(row.codes[k / 2] >> (k % 2 * 4) & 15));
      for (int r = 0; r < kRows; ++r) {
        const int of = int(q[row_at[r] + k]);
        terms[r] += (code - middle) * of;
        of_x[r] += of;
      }
    }
  }
  if (long(lane) * 8 < p.inputs) {
    const float scale = row.scale(group);
    const float minimum = p.use_minima != 0 ? row.minimum(group, scale) : 0.0f;
    for (int r = 0; r < kRows; ++r) {
      sums[r] = fma(float(terms[r]), scale, fma(float(of_x[r]), minimum, sums[r]));
    }
  }
  for (int r = 0; r < kRows; ++r) sums[r] = simd_sum(sums[r]);
  if (lane != 0) return;
  for (int r = 0; r < kRows; ++r) {
    if (first + r < p.rows) {
      y[(first + r) * p.outputs + position.y] = T(steps[first + r] * sums[r]);
    }
  }
}

#define INSTANTIATE_ROWS(T, S, bits, rows)                                                      \
  INSTANTIATE_KERNEL("dynamic_products_" #T "_" #S "_" #bits "_" #rows, dynamic_products, T, S, \
                     bits, rows)
#define INSTANTIATE_SCALES(T, S) \
  INSTANTIATE_ROWS(T, S, 4, 1)   \
  INSTANTIATE_ROWS(T, S, 4, 4)   \
  INSTANTIATE_ROWS(T, S, 8, 1)   \
  INSTANTIATE_ROWS(T, S, 8, 4)
#define INSTANTIATE(T)                                    \
  INSTANTIATE_KERNEL("dynamic_rows_" #T, dynamic_rows, T) \
  INSTANTIATE_SCALES(T, float)                            \
  INSTANTIATE_SCALES(T, half)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
