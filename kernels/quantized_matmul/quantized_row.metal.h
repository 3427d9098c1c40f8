// A row of quantized weights in a shader.

#ifndef METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROW_METAL_H_
#define METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROW_METAL_H_

#include <metal_stdlib>

#include "kernels/quantized_matmul/quantized_matmul_params.h"

template <typename S>
struct QuantizedRow {
  device const uchar* codes;
  device const S *scales, *minima;
  long block;
  bool use_minima;
  float middle;

  QuantizedRow(constant QuantizedParams& p, device const uchar* all_codes,
               device const S* all_scales, device const S* all_minima, long output)
      : codes(all_codes + output * p.bytes),
        scales(all_scales + output * p.row_groups),
        minima(all_minima + (p.use_minima != 0 ? output * p.row_groups : 0)),
        block(p.block),
        use_minima(p.use_minima != 0),
        middle(p.middle) {}

  float scale(long group) thread const { return float(scales[group]); }
  float minimum(long group, float scale) thread const {
    return use_minima ? float(minima[group]) : -middle * scale;
  }
};

// Code i of a row, whose first byte is at `codes`.
template <int kBits>
inline float quantized_code(device const uchar* codes, long i) {
  return kBits == 8 ? float(codes[i]) : float(codes[i / 2] >> (i % 2 * 4) & 15);
}

#endif  // METAL_OPS_KERNELS_QUANTIZED_MATMUL_QUANTIZED_ROW_METAL_H_
