// The least that a kernel does: see encode_launch.mm.

#include <metal_stdlib>

using namespace metal;

struct TwiceParams {
  ulong n_elements;
  float scale;
  uint reserved;
};

kernel void twice_float(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                        constant TwiceParams& params [[buffer(2)]],
                        uint i [[thread_position_in_grid]]) {
  if (i < params.n_elements) y[i] = params.scale * x[i];
}
