// The product of a few states with a matrix that stays in the cache: packed once per sequence, used
// every step. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_RECURRENT_RECURRENT_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_RECURRENT_RECURRENT_PRODUCT_INL_H_
#undef METAL_OPS_KERNELS_RECURRENT_RECURRENT_PRODUCT_INL_H_
#else
#define METAL_OPS_KERNELS_RECURRENT_RECURRENT_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Two vectors of 16 floats at most a row, and rows such that the sums fill the registers except a few.
using ProductTag = hn::CappedTag<float, 16>;
using ProductVector = hn::Vec<ProductTag>;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int64_t kProductRows = 6;  // of 16 registers
#else
constexpr int64_t kProductRows = 12;  // of 32 registers
#endif
// Terms summed before they are added to the result: a panel's piece stays in the first cache.
constexpr int64_t kProductTerms = 256;

HWY_INLINE int64_t PanelColumns() { return 2 * static_cast<int64_t>(hn::Lanes(ProductTag())); }
HWY_INLINE int64_t RoundToPanel(int64_t n) {
  return (n + PanelColumns() - 1) / PanelColumns() * PanelColumns();
}

// A matrix in panels of columns, the last one filled up with zeros: element (k, j) of a panel is its
// k * PanelColumns() + j.
struct Panels {
  int64_t depth = 0, columns = 0;
  float* data = nullptr;

  int64_t size() const { return depth * RoundToPanel(columns); }
};

// Panel `j` of the matrix whose element (k, column) is from[k * row + column * column_step].
inline void PackPanel(const float* from, int64_t row, int64_t column_step, const Panels& to,
                      int64_t j) {
  const int64_t wide = PanelColumns(), begin = j * wide, n = std::min(wide, to.columns - begin);
  float* out = to.data + j * wide * to.depth;
  for (int64_t k = 0; k < to.depth; ++k, out += wide) {
    const float* const in = from + k * row + begin * column_step;
    for (int64_t c = 0; c < n; ++c) out[c] = in[c * column_step];
    for (int64_t c = n; c < wide; ++c) out[c] = 0.0f;
  }
}

// Arrays that the compiler takes apart: all loops over r have constant bounds. Three rows share an
// address, so that all of them stay in registers.
template <int kRows>
HWY_INLINE void ProductTile(const float* a, int64_t a_row, int64_t terms, const float* b, float* to,
                            int64_t to_row, bool add) {
  const ProductTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kBases = (kRows + 2) / 3;
  const float* base[kBases];
  for (int q = 0; q < kBases; ++q) base[q] = a + 3 * q * a_row;
  ProductVector left[kRows], right[kRows];
  for (int r = 0; r < kRows; ++r) left[r] = right[r] = hn::Zero(d);
  for (int64_t k = 0; k < terms; ++k, b += 2 * lanes) {
    const ProductVector b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
    for (int r = 0; r < kRows; ++r) {
      const ProductVector x = hn::Set(d, base[r / 3][(r % 3) * a_row + k]);
      left[r] = hn::MulAdd(x, b0, left[r]);
      right[r] = hn::MulAdd(x, b1, right[r]);
    }
  }
  for (int r = 0; r < kRows; ++r, to += to_row) {
    if (add) {
      left[r] = hn::Add(left[r], hn::LoadU(d, to));
      right[r] = hn::Add(right[r], hn::LoadU(d, to + lanes));
    }
    hn::StoreU(left[r], d, to);
    hn::StoreU(right[r], d, to + lanes);
  }
}

// to[rows, columns] = a[rows, depth] panels, or added to the old values of `to`. Rows of `to` have
// room for whole panels.
inline void Multiply(const float* a, int64_t a_row, int64_t rows, const Panels& b, float* to,
                     int64_t to_row, bool add = false) {
  const int64_t wide = PanelColumns(), n_panels = RoundToPanel(b.columns) / wide;
  if (b.depth == 0 && !add) {
    for (int64_t r = 0; r < rows; ++r) std::fill_n(to + r * to_row, b.columns, 0.0f);
  }
  for (int64_t k = 0; k < b.depth; k += kProductTerms) {
    const int64_t terms = std::min(kProductTerms, b.depth - k);
    const bool adds = add || k > 0;
    for (int64_t j = 0; j < n_panels; ++j) {
      const float* const panel = b.data + (j * b.depth + k) * wide;
      for (int64_t r = 0; r < rows;) {
        const float* const from = a + r * a_row + k;
        float* const out = to + r * to_row + j * wide;
        const int64_t left = rows - r;
        if (left >= kProductRows) {
          ProductTile<kProductRows>(from, a_row, terms, panel, out, to_row, adds);
          r += kProductRows;
        } else if (kProductRows > 8 && left >= 8) {
          ProductTile<8>(from, a_row, terms, panel, out, to_row, adds);
          r += 8;
        } else if (left >= 4) {
          ProductTile<4>(from, a_row, terms, panel, out, to_row, adds);
          r += 4;
        } else if (left >= 2) {
          ProductTile<2>(from, a_row, terms, panel, out, to_row, adds);
          r += 2;
        } else {
          ProductTile<1>(from, a_row, terms, panel, out, to_row, adds);
          r += 1;
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_RECURRENT_RECURRENT_PRODUCT_INL_H_
