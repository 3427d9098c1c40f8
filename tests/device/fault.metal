// A shader with a mistake: it writes past the end of its output.

#include <metal_stdlib>

using namespace metal;

kernel void past_the_end(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                         uint i [[thread_position_in_grid]]) {
  y[i + 1000000] = x[i];
}
