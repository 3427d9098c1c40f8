// PackedScan and PackedProdGrad.
//
// A thread per ray, in order, so results are the same on every run. Sums run in 48 bits, products
// with an exponent of their own, and both are rounded once.

#include <metal_stdlib>

#include "kernels/msl/instantiate.h"
#include "kernels/msl/wide_float.h"
#include "kernels/packed_scan/packed_scan_params.h"
#include "kernels/rays/ray_layout.h"

using namespace metal;

// Place of a ray's i-th sample in the order of the scan.
inline ulong scan_at(RaySpan span, uint i, uint reverse) {
  return span.start + (reverse != 0 ? span.count - 1 - i : i);
}

// Grid: rays.
template <typename T>
kernel void packed_sum(device const T* inputs [[buffer(0)]],
                       device const RaySpan* spans [[buffer(1)]], device T* outputs [[buffer(2)]],
                       constant RayLayout& layout [[buffer(3)]],
                       constant PackedScanParams& params [[buffer(4)]],
                       uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  WideFloat sum = wide(0.0f);
  for (uint i = 0; i < span.count; ++i) {
    const ulong at = scan_at(span, i, params.reverse);
    const WideFloat next = wide_add(sum, float(inputs[at]));
    outputs[at] = T(params.exclusive != 0 ? sum.high : next.high);
    sum = next;
  }
}

// Grid: rays.
template <typename T>
kernel void packed_prod(device const T* inputs [[buffer(0)]],
                        device const RaySpan* spans [[buffer(1)]], device T* outputs [[buffer(2)]],
                        constant RayLayout& layout [[buffer(3)]],
                        constant PackedScanParams& params [[buffer(4)]],
                        uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  ScaledFloat product = scaled(1.0f);
  for (uint i = 0; i < span.count; ++i) {
    const ulong at = scan_at(span, i, params.reverse);
    const ScaledFloat next = scaled_multiply(product, scaled(float(inputs[at])));
    outputs[at] = T(scaled_to_float(params.exclusive != 0 ? product : next));
    product = next;
  }
}

// d loss / d x_i = P_i R_i with P_i = product of x_j before i, and R_i = sum over the outputs j
// that x_i is in, of g_j times all other factors behind i: R_i = g_i + x_{i+1} R_{i+1} (inclusive),
// R_i = g_{i+1} + x_{i+1} R_{i+1} (exclusive).  Grid: rays; `before` holds the P_i.
template <typename T>
kernel void packed_prod_grad(
    device const T* d_outputs [[buffer(0)]], device const T* inputs [[buffer(1)]],
    device const RaySpan* spans [[buffer(2)]], device ScaledFloat* before [[buffer(3)]],
    device T* outputs [[buffer(4)]], constant RayLayout& layout [[buffer(5)]],
    constant PackedScanParams& params [[buffer(6)]], uint ray [[thread_position_in_grid]]) {
  const RaySpan span = ray_span(layout, spans, ray);
  ScaledFloat product = scaled(1.0f);
  for (uint i = 0; i < span.count; ++i) {
    const ulong at = scan_at(span, i, params.reverse);
    before[at] = product;
    product = scaled_multiply(product, scaled(float(inputs[at])));
  }
  ScaledFloat tail = scaled(0.0f);
  for (uint i = span.count; i-- > 0;) {
    const ulong at = scan_at(span, i, params.reverse);
    const ScaledFloat g = scaled(float(d_outputs[at])), x = scaled(float(inputs[at]));
    if (params.exclusive == 0) tail = scaled_add(tail, g);
    outputs[at] = T(scaled_to_float(scaled_multiply(before[at], tail)));
    tail = scaled_multiply(tail, x);
    if (params.exclusive != 0) tail = scaled_add(tail, g);
  }
}

#define INSTANTIATE_TYPE(T)                             \
  INSTANTIATE_KERNEL("packed_sum_" #T, packed_sum, T)   \
  INSTANTIATE_KERNEL("packed_prod_" #T, packed_prod, T) \
  INSTANTIATE_KERNEL("packed_prod_grad_" #T, packed_prod_grad, T)

INSTANTIATE_TYPE(float)
INSTANTIATE_TYPE(half)
IF_BFLOAT(INSTANTIATE_TYPE(bfloat))
