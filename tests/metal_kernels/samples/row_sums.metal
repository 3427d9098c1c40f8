// The shader of the other sample op: one threadgroup a row.

#include <metal_stdlib>

using namespace metal;

[[kernel]] void row_sums(const device float* matrix [[buffer(0)]], device float* sums [[buffer(1)]],
                         constant uint& columns [[buffer(2)]],
                         uint row [[threadgroup_position_in_grid]]) {
  float sum = 0;
  for (uint i = 0; i < columns; i++) sum += matrix[row * columns + i];
  sums[row] = sum;
}
