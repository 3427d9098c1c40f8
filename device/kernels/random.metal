// Stateless uniform random numbers: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers:
// as easy as 1, 2, 3"), four numbers a count, as TensorFlow's own kernels have them on every
// device.

#include <metal_stdlib>

#include "device/kernels/normal.metal.h"
#include "device/kernels/random_params.h"
#include "kernels/msl/instantiate.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

inline uint4 philox(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const uint low0 = counter.x * 0xD2511F53u, high0 = mulhi(counter.x, 0xD2511F53u);
    const uint low1 = counter.z * 0xCD9E8D57u, high1 = mulhi(counter.z, 0xCD9E8D57u);
    counter = uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key += uint2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

// The numbers of group `group`: the 128-bit counter, that much further.
inline uint4 random_group(constant RandomParams& p, ulong group) {
  uint4 counter = uint4(p.counter[0], p.counter[1], p.counter[2], p.counter[3]);
  const uint low = uint(group);
  uint high = uint(group >> 32);
  counter.x += low;
  if (counter.x < low) ++high;
  counter.y += high;
  if (counter.y < high && ++counter.z == 0) ++counter.w;
  return philox(counter, uint2(p.key[0], p.key[1]));
}

// The numbers of a group, as far as there are so many. Threads first meet at a barrier: a processor makes a
// loop of the code before it, which has no branches and becomes vector code.
template <typename T, int N>
inline void store_group(device T* out, ulong total, uint group, const thread T (&numbers)[N]) {
  simdgroup_barrier(mem_flags::mem_none);
  const ulong first = N * ulong(group);
  for (int i = 0; i < N && first + i < total; ++i) out[first + i] = numbers[i];
}

// The parameters of the numbers, where the device alone knows key and counter. One thread.
kernel void random_params(device RandomParams* out [[buffer(0)]],
                          constant RandomParams& p [[buffer(1)]],
                          device const uint* key [[buffer(2)]],
                          device const uint* counter [[buffer(3)]],
                          uint i [[thread_position_in_grid]]) {
  RandomParams whole = p;
  for (uint k = 0; k < 2; ++k) whole.key[k] = key[k];
  for (uint k = 0; k < 4; ++k) whole.counter[k] = counter[k];
  out[i] = whole;
}

// [0, 1), of the dtype's own length.
template <typename T>
inline T unit(uint bits);
template <>
inline float unit<float>(uint bits) {
  return unit_float(bits);
}
template <>
inline half unit<half>(uint bits) {
  return half(float(as_type<half>(ushort((bits & 0x3ffu) | 0x3c00u))) - 1.0f);
}
#if __METAL_VERSION__ >= 310
template <>
inline bfloat unit<bfloat>(uint bits) {
  return bfloat(as_type<float>(((bits & 0x7fu) | 0x3f80u) << 16) - 1.0f);
}
#endif

// Grid of all: groups of four.
template <typename T>
kernel void random_uniform(device T* out [[buffer(0)]], constant RandomParams& p [[buffer(1)]],
                           uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  const T numbers[] = {unit<T>(bits.x), unit<T>(bits.y), unit<T>(bits.z), unit<T>(bits.w)};
  store_group(out, p.total, group, numbers);
}

template <typename T>
kernel void random_normal(device T* out [[buffer(0)]], constant RandomParams& p [[buffer(1)]],
                          uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  const float2 a = normal_pair(bits.x, bits.y), b = normal_pair(bits.z, bits.w);
  const T numbers[] = {T(a.x), T(a.y), T(b.x), T(b.y)};
  store_group(out, p.total, group, numbers);
}

// Normal numbers less than 2 from 0: those that are not are drawn again. A group has 1024 uniform
// numbers to itself.
template <typename T>
kernel void random_truncated_normal(device T* out [[buffer(0)]],
                                    constant RandomParams& p [[buffer(1)]],
                                    uint group [[thread_position_in_grid]]) {
  const ulong first = 4 * ulong(group);
  ulong counter = 256 * ulong(group);
  uint4 bits = random_group(p, counter);
  float2 a = normal_pair(bits.x, bits.y), b = normal_pair(bits.z, bits.w);
  simdgroup_barrier(mem_flags::mem_none);  // as in store_group
  uint i = 0;
  while (true) {
    const float4 numbers = float4(a.x, a.y, b.x, b.y);
    for (uint k = 0; k < 4 && i < 4 && first + i < p.total; ++k) {
      if (abs(numbers[k]) < 2.0f) out[first + i++] = T(numbers[k]);
    }
    if (i == 4 || first + i == p.total) break;
    bits = random_group(p, ++counter);
    a = normal_pair(bits.x, bits.y), b = normal_pair(bits.z, bits.w);
  }
}

#define RANDOM(type)                                                \
  INSTANTIATE_KERNEL("random_uniform_" #type, random_uniform, type) \
  INSTANTIATE_KERNEL("random_normal_" #type, random_normal, type)   \
  INSTANTIATE_KERNEL("random_truncated_normal_" #type, random_truncated_normal, type)
RANDOM(float)
RANDOM(half)
IF_BFLOAT(RANDOM(bfloat))

kernel void random_full_uint(device uint* out [[buffer(0)]], constant RandomParams& p [[buffer(1)]],
                             uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  const uint numbers[] = {bits.x, bits.y, bits.z, bits.w};
  store_group(out, p.total, group, numbers);
}

kernel void random_full_ulong(device ulong* out [[buffer(0)]],
                              constant RandomParams& p [[buffer(1)]],
                              uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  const ulong numbers[] = {ulong(bits.x) | ulong(bits.y) << 32, ulong(bits.z) | ulong(bits.w)
                                                                                    << 32};
  store_group(out, p.total, group, numbers);
}

kernel void random_uniform_int(device int* out [[buffer(0)]],
                               constant RandomParams& p [[buffer(1)]],
                               uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  simdgroup_barrier(mem_flags::mem_none);
  const ulong first = 4 * ulong(group);
  for (uint i = 0; i < 4 && first + i < p.total; ++i) {
    out[first + i] = int(uint(p.low) + bits[i] % uint(p.range));
  }
}

// Two numbers per element: a group of two.
kernel void random_uniform_long(device long* out [[buffer(0)]],
                                constant RandomParams& p [[buffer(1)]],
                                uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  simdgroup_barrier(mem_flags::mem_none);
  const ulong first = 2 * ulong(group);
  for (uint i = 0; i < 2 && first + i < p.total; ++i) {
    const ulong both = ulong(bits[2 * i]) | ulong(bits[2 * i + 1]) << 32;
    out[first + i] = long(ulong(p.low) + both % p.range);
  }
}

// A generator's state, [counter, counter, key]: its old value, and the advanced one. One thread.
kernel void random_skip(device ulong* state [[buffer(0)]], device ulong* before [[buffer(1)]],
                        constant ulong& count [[buffer(2)]], constant uint& read [[buffer(3)]],
                        uint i [[thread_position_in_grid]]) {
  if (read != 0) {
    for (uint k = 0; k < 3; ++k) before[i + k] = state[k];
  }
  const ulong low = state[i] + count;
  if (low < count) ++state[i + 1];
  state[i] = low;
}

// ---- classes by their logits --------------------------------------------------------------------

// A row's probabilities summed over the classes up to each; not divided by the total. Logits that are
// no number or infinite have none. Grid: rows.
template <typename T>
kernel void multinomial_sums(device const T* logits [[buffer(0)]], device float* sums [[buffer(1)]],
                             constant uint& classes [[buffer(2)]],
                             uint row [[thread_position_in_grid]]) {
  device const T* const from = logits + ulong(row) * classes;
  device float* const to = sums + ulong(row) * classes;
  float largest = -INFINITY;
  for (uint i = 0; i < classes; ++i) {
    const float x = float(from[i]);
    if (isfinite(x)) largest = max(largest, x);
  }
  // The rounding error of the addition is put back.
  float sum = 0.0f, lost = 0.0f;
  for (uint i = 0; i < classes; ++i) {
    const float x = float(from[i]);
    const float term = (isfinite(x) ? exp(x - largest) : 0.0f) - lost;
    const float next = sum + term;
    lost = (next - sum) - term;
    sum = next;
    to[i] = sum;
  }
}
INSTANTIATE_KERNEL("multinomial_sums_float", multinomial_sums, float)
INSTANTIATE_KERNEL("multinomial_sums_half", multinomial_sums, half)
IF_BFLOAT(INSTANTIATE_KERNEL("multinomial_sums_bfloat", multinomial_sums, bfloat))

// The first class whose sum is more than a part of it all. The part is a number of 52 bits, as the CPU
// draws them: two for every sample. Grid: samples, rows.
template <typename T>
kernel void multinomial_draw(device const float* sums [[buffer(0)]], device T* out [[buffer(1)]],
                             constant uint& classes [[buffer(2)]],
                             constant RandomParams& p [[buffer(3)]],
                             uint2 position [[thread_position_in_grid]],
                             uint2 size [[threads_per_grid]]) {
  const ulong i = ulong(position.y) * size.x + position.x;
  const uint4 bits = random_group(p, i / 2);
  const uint high = i % 2 == 0 ? bits.x : bits.z, low = i % 2 == 0 ? bits.y : bits.w;
  const float rounded = fma(float(low), 0x1p-52f, float(high & 0xfffffu) * 0x1p-20f);
  const float part = min(rounded, 0x1.fffffep-1f);
  device const float* const row = sums + ulong(position.y) * classes;
  const float wanted = part * row[classes - 1];
  uint first = 0, count = classes;
  while (count > 0) {
    const uint half_count = count / 2;
    if (!(wanted < row[first + half_count])) {
      first += half_count + 1;
      count -= half_count + 1;
    } else {
      count = half_count;
    }
  }
  out[i] = T(first);
}
INSTANTIATE_KERNEL("multinomial_draw_int", multinomial_draw, int)
INSTANTIATE_KERNEL("multinomial_draw_long", multinomial_draw, long)
