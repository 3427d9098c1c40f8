// The shader of the sample op.

#include <metal_stdlib>
using namespace metal;

// No [[buffer(n)]]: the numbers follow from the order.
kernel void Saxpy(device const float* x, device const float* y, device float* z, constant float& a,
                  constant uint32_t& count, uint i [[thread_position_in_grid]]) {
  if (i >= count) return;
  z[i] = a * x[i] + y[i];
}
