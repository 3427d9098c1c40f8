// The kernels of fixture_kernels.cc as a shader, so that the runtime's tests run on a GPU, with the names and arguments
// of that file.
#include <metal_stdlib>
using namespace metal;

kernel void noop() {}

kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                device float4* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  reinterpret_cast<device float*>(out)[i] = a[i] + b[i];
}

kernel void increment(device uint* out [[buffer(0)]], constant uint& amount [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
  out[i] += amount;
}

kernel void grid(device atomic_uint* out [[buffer(0)]], uint3 at [[thread_position_in_grid]],
                 uint3 size [[threads_per_grid]]) {
  uint linear = (at.z * size.y + at.y) * size.x + at.x;
  atomic_fetch_add_explicit(&out[linear], linear + 1, memory_order_relaxed);
}

// A shader sees no clock, so it counts turns that nothing may leave out: a microsecond at least, and ten seconds.
#ifdef __METAL_NVPTX__
constant uint turns_a_us = 500;
constant uint patience = 20000000;
#else
constant uint turns_a_us = 8000;
constant uint patience = 1000000000;
#endif

static void turn(uint turns) {
  volatile uint now = 0;
  for (uint i = 0; i < turns; ++i) now = i;
}

kernel void spin(constant uint& us [[buffer(0)]]) { turn(us * turns_a_us); }

kernel void slow_mark(device atomic_uint* marks [[buffer(0)]],
                      uint group [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]]) {
  turn(300 * turns_a_us);
  if (thread_index == 0) atomic_fetch_add_explicit(&marks[group], 1u, memory_order_relaxed);
}

kernel void check_marks(device atomic_uint* marks [[buffer(0)]], device uint* missing [[buffer(1)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  if (thread_index != 0) return;
  for (int i = 0; i < 64; ++i)
    missing[group] += atomic_load_explicit(&marks[i], memory_order_relaxed) != 1;
}

kernel void wait_flag(device atomic_uint* flag [[buffer(0)]]) {
  for (uint i = 0; i < patience; ++i) {
    if (atomic_load_explicit(&flag[0], memory_order_relaxed)) return;
  }
  atomic_store_explicit(&flag[1], 1u, memory_order_relaxed);
}

kernel void set_flag(device atomic_uint* flag [[buffer(0)]]) {
  atomic_store_explicit(&flag[0], 1u, memory_order_relaxed);
}

kernel void append(device uint* log [[buffer(0)]], constant uint& value [[buffer(1)]]) {
  log[1 + log[0]++] = value;
}

constant float factor [[function_constant(0)]];
constant int offset [[function_constant(7)]];
constant bool use_extra [[function_constant(2)]];

kernel void constants(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = factor * (is_function_constant_defined(offset) ? offset : -1);
}

kernel void optional(device uint* out [[buffer(0)]],
                     device const float* extra [[buffer(5), function_constant(use_extra)]]) {}

struct Params {
  float values[4];
};
kernel void params(device uint* out [[buffer(0)]], constant Params& params [[buffer(3)]]) {
  for (int i = 0; i < 4; ++i) out[i] = as_type<uint>(params.values[i]);
}

struct Words {
  uint words[4];
};
kernel void raise(device uint* out [[buffer(0)]], device Words& words [[buffer(1)]]) {
  for (int i = 0; i < 4; ++i) out[i] = words.words[i]++;
}

kernel void barrier(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint arrived;
  if (thread_index == 0) atomic_store_explicit(&arrived, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&arrived, 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = atomic_load_explicit(&arrived, memory_order_relaxed);
}

// The lengths of threadgroup memory, which fixture_kernels.cc also reports, are seen by no shader.
[[max_total_threads_per_threadgroup(256)]] kernel void describe(
    device uint* out [[buffer(0)]], threadgroup float* x [[threadgroup(0)]],
    threadgroup float* y [[threadgroup(1)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float fixed[256];
  fixed[i] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (fixed[255 - i] == 2) out[0] = uint(x[0] + y[0]);
}
