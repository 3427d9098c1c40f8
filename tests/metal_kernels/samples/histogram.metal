// Counts in threadgroup memory first, then in device memory; the sum of all values by float
// atomics.

#include <metal_atomic>
#include <metal_math>
#include <metal_simdgroup>
#include <metal_stdlib>

using namespace metal;

struct Params {
  float low;
  float inverse_width;
  uint bins;
  uint width;
  uint height;
};

constant constexpr uint kMaxBins = 256;

template <typename T>
[[kernel]] void histogram(device const T* values [[buffer(0)]],
                          device atomic_uint* counts [[buffer(1)]],
                          device atomic_float* total [[buffer(2)]],
                          constant Params& params [[buffer(3)]],
                          uint2 position [[thread_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]],
                          uint3 group_size [[threads_per_threadgroup]]) {
  threadgroup atomic_uint local[kMaxBins];
  const uint threads = group_size.x * group_size.y * group_size.z;
  for (uint b = index; b < params.bins; b += threads) {
    atomic_store_explicit(&local[b], 0, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float value = 0;
  if (position.x < params.width && position.y < params.height) {
    value = float(values[position.y * params.width + position.x]);
    const float at = floor((value - params.low) * params.inverse_width);
    const uint bin = uint(clamp(at, 0.0f, float(params.bins - 1)));
    atomic_fetch_add_explicit(&local[bin], 1u, memory_order_relaxed);
  }
  const float sum = simd_sum(value);
  if (simd_is_first()) atomic_fetch_add_explicit(total, sum, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint b = index; b < params.bins; b += threads) {
    const uint count = atomic_load_explicit(&local[b], memory_order_relaxed);
    if (count > 0) atomic_fetch_add_explicit(&counts[b], count, memory_order_relaxed);
  }
}

template [[host_name("histogram_float")]] [[kernel]] void histogram<float>(device const float*,
                                                                           device atomic_uint*,
                                                                           device atomic_float*,
                                                                           constant Params&, uint2,
                                                                           uint, uint3);
template [[host_name("histogram_half")]] [[kernel]] void histogram<half>(device const half*,
                                                                         device atomic_uint*,
                                                                         device atomic_float*,
                                                                         constant Params&, uint2,
                                                                         uint, uint3);
