// The kernels that the driver's tests launch: every sort of argument, and function constants.
#include <metal_stdlib>
using namespace metal;

struct Small {
  float scale;
  uint count;
};
struct Large {
  float values[80];  // more than travels with the parameters
};
constant uint kWidth [[function_constant(0)]];
constant bool kBias [[function_constant(1)]];
constant bool kTwice = kWidth == 2;

kernel void scale(device float* out [[buffer(0)]], constant Small& small [[buffer(1)]],
                  constant Large& large [[buffer(2)]], constant uint* list [[buffer(3)]],
                  device const float* bias [[buffer(4), function_constant(kBias)]],
                  threadgroup float* first [[threadgroup(0)]],
                  threadgroup float* second [[threadgroup(1)]], uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]]) {
  first[t] = small.scale;
  second[t] = large.values[i % 80];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float v = first[t] * second[t ^ 1] + float(list[i % 4] * kWidth);
  if (kBias) v += bias[i];
  if (kTwice) v *= 2.0f;
  if (i < small.count) out[i] = v;
}

kernel void grid(device uint3* out [[buffer(0)]], uint3 at [[thread_position_in_grid]]) {
  out[at.x] = at;
}
constant os_log gpu_log("gpu", "log");
kernel void tell(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i == 5) gpu_log.log_error("told %u", i);
  out[i] = 1;
}
kernel void other(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = sin(out[i]);
}
#if defined(__HAVE_WARPGROUP_MATRIX__)
struct Sums {
  float part[4];
};
kernel void four(device float* out [[buffer(0)]], threadgroup half* a [[threadgroup(0)]]) {
  Sums sums[8];
  _msl::begin_products();
  const ulong at = _msl::matrix_at(a, 16);
  _msl::multiply_64<half, false, false>(sums, at, at, false);
  _msl::end_products();
  _msl::wait_for_products<0>();
  out[0] = sums[0].part[0];
}
#else
kernel void four(device float* out [[buffer(0)]], threadgroup half* a [[threadgroup(0)]]) {
  out[0] = float(a[0]);
}
#endif
