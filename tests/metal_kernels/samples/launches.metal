// The shaders that launches.mm launches rightly and wrongly.

#include <metal_stdlib>

using namespace metal;

struct ScaleParams {
  uint n;
  float scale;
};

kernel void scale_float(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                        constant ScaleParams& params [[buffer(2)]],
                        uint i [[thread_position_in_grid]]) {
  if (i < params.n) y[i] = params.scale * x[i];
}

// More arguments than fit on a line, in an order of their own.
kernel void sum_of_many(device float* total [[buffer(30)]], constant float* a0 [[buffer(0)]],
                        constant float* a1 [[buffer(7)]], constant float* a2 [[buffer(3)]],
                        constant float* a3 [[buffer(11)]], constant float* a4 [[buffer(5)]],
                        constant uint& n [[buffer(29)]], uint i [[thread_position_in_grid]]) {
  if (i < n) total[i] = a0[i] + 2 * a1[i] + 3 * a2[i] + 4 * a3[i] + 5 * a4[i];
}

constant float factor [[function_constant(0)]];

kernel void times(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  y[i] = factor * x[i];
}
