// Products of whole and of complex numbers, and convolutions of whole ones: every thread sums a tile of its own.
// Whole numbers have no sign here, which changes no sum.

#include "device/kernels/complex.metal.h"
#include "device/kernels/nn/product_params.h"
#include "kernels/gemm/gemm.metal.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

inline ushort times(ushort a, ushort b) { return ushort(uint(a) * uint(b)); }
inline uint times(uint a, uint b) { return a * b; }
inline ulong times(ulong a, ulong b) { return a * b; }

// Where the terms of a tile are. `step`: from one column of b to the next, of `columns`.
struct Terms {
  long at, row, step;
  uint columns, depth;
};
// -1: of whose numbers the imaginary part changes its sign.
struct Signs {
  float a, b;
};

// A tile's sums, and their accumulators: copies that are never indexed by a variable live in registers.
template <bool kNeighbours, bool kSomeOutside, int kRows, int kColumns, typename T>
inline void add_terms(device const T* a, thread long (&from)[kRows], thread bool (&inside)[kRows],
                      long a_c, device const T* b, Terms terms, Signs,
                      thread T (&sums)[kRows][kColumns]) {
  T local[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) local[r][j] = sums[r][j];
  }
  for (uint c = 0; c < terms.depth; ++c, terms.at += terms.row) {
    T line[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      if (kNeighbours) {
        line[j] = b[terms.at + j];
      } else {
        line[j] = uint(j) < terms.columns ? b[terms.at + j * terms.step] : T(0);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const T value = !kSomeOutside || inside[r] ? a[from[r] + long(c) * a_c] : T(0);
      for (int j = 0; j < kColumns; ++j) local[r][j] = T(local[r][j] + times(value, line[j]));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) sums[r][j] = local[r][j];
  }
}

// Real and imaginary parts apart from each other.
template <bool kNeighbours, bool kSomeOutside, int kRows, int kColumns>
inline void add_terms(device const float2* a, thread long (&from)[kRows],
                      thread bool (&inside)[kRows], long a_c, device const float2* b, Terms terms,
                      Signs signs, thread float2 (&sums)[kRows][kColumns]) {
  float real[kRows][kColumns], imaginary[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) {
      real[r][j] = sums[r][j].x;
      imaginary[r][j] = sums[r][j].y;
    }
  }
  for (uint c = 0; c < terms.depth; ++c, terms.at += terms.row) {
    float x[kColumns], y[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      float2 value = float2(0.0f);
      if (kNeighbours) {
        value = b[terms.at + j];
      } else if (uint(j) < terms.columns) {
        value = b[terms.at + j * terms.step];
      }
      x[j] = value.x;
      y[j] = value.y * signs.b;
    }
    for (int r = 0; r < kRows; ++r) {
      const float2 value = !kSomeOutside || inside[r] ? a[from[r] + long(c) * a_c] : float2(0.0f);
      const float u = value.x, v = value.y * signs.a;
      for (int j = 0; j < kColumns; ++j) {
        real[r][j] = fma(u, x[j], fma(-v, y[j], real[r][j]));
        imaginary[r][j] = fma(u, y[j], fma(v, x[j], imaginary[r][j]));
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) sums[r][j] = float2(real[r][j], imaginary[r][j]);
  }
}

// `conjugated`: 1 if a is, 2 if b is. With neighbours there are kColumns at least, or b's rows are padded to so
// many. Grid: tiles along the rows, along the columns, products.
template <typename T, bool kNeighbours, int kRows, int kColumns>
[[kernel, max_total_threads_per_threadgroup(32)]] void product(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device T* out [[buffer(2)]],
    constant GemmParams& params [[buffer(3)]], constant uint& conjugated [[buffer(4)]],
    uint3 position [[thread_position_in_grid]]) {
  const GemmOffsets offsets = gemm_offsets(params, position.z);
  const long first_row = long(position.x) * kRows;
  // At its end b is read whole, where it can be: columns that another thread stores are summed
  // here, too.
  const uint column = position.y * kColumns;
  const bool ends = kNeighbours && params.columns >= kColumns;
  const uint first_column = ends ? min(column, params.columns - kColumns) : column;
  const uint columns = min(uint(kColumns), params.columns - first_column);
  const Signs signs = {(conjugated & 1) != 0 ? -1.0f : 1.0f, (conjugated & 2) != 0 ? -1.0f : 1.0f};
  Terms terms = {offsets.b + long(first_column) * params.b_column, params.b_row, params.b_column,
                 columns, params.depth};
  GemmRow rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = gemm_row(params, min(first_row + r, params.rows - 1));
  T sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) sums[r][j] = T(0);
  }
  for (uint fy = 0; fy < params.filter_h; ++fy) {
    for (uint fx = 0; fx < params.filter_w; ++fx) {
      long from[kRows];
      bool inside[kRows];
      bool all = true;
      for (int r = 0; r < kRows; ++r) {
        const int y = rows[r].top + int(fy * params.dilation_h);
        const int x = rows[r].left + int(fx * params.dilation_w);
        inside[r] = y >= 0 && y < int(params.in_h) && x >= 0 && x < int(params.in_w);
        all = all && inside[r];
        const long at = rows[r].image + long(y) * params.a_y + long(x) * params.a_x;
        from[r] = offsets.a + (inside[r] ? at : 0);
      }
      if (all) {
        add_terms<kNeighbours, false>(a, from, inside, params.a_c, b, terms, signs, sums);
      } else {
        add_terms<kNeighbours, true>(a, from, inside, params.a_c, b, terms, signs, sums);
      }
      terms.at += long(params.depth) * params.b_row;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r >= params.rows) break;
    device T* const to = out + offsets.out + rows[r].out + long(first_column) * params.out_column;
    for (int j = 0; j < kColumns; ++j) {
      const uint at = uint(j);
      if (at >= column - first_column && at < columns) to[j * params.out_column] = sums[r][j];
    }
  }
}

#if defined(__METAL_CPU__)
#define PRODUCT_OF_MANY(type) \
  INSTANTIATE_KERNEL("product_" #type, product, type, true, PRODUCT_ROWS, PRODUCT_COLUMNS)
PRODUCT_OF_MANY(ushort)
PRODUCT_OF_MANY(uint)
PRODUCT_OF_MANY(ulong)
PRODUCT_OF_MANY(float2)

// The sum of a line's terms. `step` is PRODUCT_DOT_LANES, which a compiler is not told: it would make vectors of every
// so manieth term. Numbers of 32 bits, which may pass their end, it would gather by.
template <typename Sum, typename T>
inline Sum dot(device const T* a, device const T* b, long depth, long step, Signs) {
  Sum lanes[PRODUCT_DOT_LANES];
  for (int k = 0; k < PRODUCT_DOT_LANES; ++k) lanes[k] = Sum(0);
  long c = 0;
  for (; c + PRODUCT_DOT_LANES <= depth; c += step) {
    for (int k = 0; k < PRODUCT_DOT_LANES; ++k) lanes[k] += Sum(a[c + k]) * Sum(b[c + k]);
  }
  Sum sum = Sum(0);
  for (; c < depth; ++c) sum += Sum(a[c]) * Sum(b[c]);
  for (int k = 0; k < PRODUCT_DOT_LANES; ++k) sum += lanes[k];
  return sum;
}
template <typename Sum>
inline float2 dot(device const float2* a, device const float2* b, long depth, long step,
                  Signs signs) {
  float real[PRODUCT_DOT_LANES], imaginary[PRODUCT_DOT_LANES];
  for (int k = 0; k < PRODUCT_DOT_LANES; ++k) real[k] = imaginary[k] = 0.0f;
  long c = 0;
  for (; c + PRODUCT_DOT_LANES <= depth; c += step) {
    for (int k = 0; k < PRODUCT_DOT_LANES; ++k) {
      const float2 u = a[c + k], v = b[c + k];
      const float u_y = u.y * signs.a, v_y = v.y * signs.b;
      real[k] = fma(u.x, v.x, fma(-u_y, v_y, real[k]));
      imaginary[k] = fma(u.x, v_y, fma(u_y, v.x, imaginary[k]));
    }
  }
  float2 sum = float2(0.0f);
  for (; c < depth; ++c) {
    sum += times(float2(a[c].x, a[c].y * signs.a), float2(b[c].x, b[c].y * signs.b));
  }
  for (int k = 0; k < PRODUCT_DOT_LANES; ++k) sum += float2(real[k], imaginary[k]);
  return sum;
}

// A plain product, of floats, too, whose terms are neighbours in a and in b. A row of a is read once from memory for all
// columns. Grid: rows, products.
template <typename T, typename Sum>
kernel void product_dots(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                         device T* out [[buffer(2)]], constant GemmParams& params [[buffer(3)]],
                         constant uint& conjugated [[buffer(4)]],
                         uint2 position [[thread_position_in_grid]]) {
  const GemmOffsets offsets = gemm_offsets(params, position.y);
  const Signs signs = {(conjugated & 1) != 0 ? -1.0f : 1.0f, (conjugated & 2) != 0 ? -1.0f : 1.0f};
  device const T* const row = a + offsets.a + long(position.x) * params.a_x;
  device T* const to = out + offsets.out + long(position.x) * params.out_point;
  const long step = PRODUCT_DOT_LANES * long(params.filter_w);
  for (uint j = 0; j < params.columns; ++j) {
    device const T* const column = b + offsets.b + long(j) * params.b_column;
    to[long(j) * params.out_column] = T(dot<Sum>(row, column, long(params.depth), step, signs));
  }
}

#define PRODUCT_DOTS(type, sum) INSTANTIATE_KERNEL("product_dots_" #type, product_dots, type, sum)
PRODUCT_DOTS(float, float)
PRODUCT_DOTS(half, float)
IF_BFLOAT(PRODUCT_DOTS(bfloat, float))
PRODUCT_DOTS(ushort, uint)
PRODUCT_DOTS(uint, uint)
PRODUCT_DOTS(ulong, ulong)
PRODUCT_DOTS(float2, float2)
#endif

#define PRODUCT_OF_FEW(type) \
  INSTANTIATE_KERNEL("product_few_" #type, product, type, false, PRODUCT_ROWS, PRODUCT_FEW_COLUMNS)
PRODUCT_OF_FEW(ushort)
PRODUCT_OF_FEW(uint)
PRODUCT_OF_FEW(ulong)
PRODUCT_OF_FEW(float2)
