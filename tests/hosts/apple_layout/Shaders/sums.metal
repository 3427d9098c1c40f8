#include <metal_stdlib>
using namespace metal;

kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                device float* sum [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  sum[i] = a[i] + b[i];
}
