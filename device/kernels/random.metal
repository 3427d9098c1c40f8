// Stateless uniform random numbers: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers:
// as easy as 1, 2, 3"), four numbers a count, as TensorFlow's own kernels have them on every
// device.

#include <metal_stdlib>

#include "device/kernels/random_params.h"
#include "kernels/msl/instantiate.h"

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
inline uint4 random_group(constant RandomParams& p, uint group) {
  uint4 counter = uint4(p.counter[0], p.counter[1], p.counter[2], p.counter[3]);
  counter.x += group;
  if (counter.x < group && ++counter.y == 0 && ++counter.z == 0) ++counter.w;
  return philox(counter, uint2(p.key[0], p.key[1]));
}

// Grid: groups of four.
kernel void random_uniform_float(device float* out [[buffer(0)]],
                                 constant RandomParams& p [[buffer(1)]],
                                 uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  const ulong first = 4 * ulong(group);
  for (uint i = 0; i < 4 && first + i < p.total; ++i) {
    // A mantissa under the exponent of 1: [1, 2).
    out[first + i] = as_type<float>((bits[i] & 0x7fffffu) | 0x3f800000u) - 1.0f;
  }
}

kernel void random_uniform_int(device int* out [[buffer(0)]],
                               constant RandomParams& p [[buffer(1)]],
                               uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  const ulong first = 4 * ulong(group);
  for (uint i = 0; i < 4 && first + i < p.total; ++i) {
    out[first + i] = int(uint(p.low) + bits[i] % uint(p.range));
  }
}

// Two numbers an element: a group of two.
kernel void random_uniform_long(device long* out [[buffer(0)]],
                                constant RandomParams& p [[buffer(1)]],
                                uint group [[thread_position_in_grid]]) {
  const uint4 bits = random_group(p, group);
  const ulong first = 2 * ulong(group);
  for (uint i = 0; i < 2 && first + i < p.total; ++i) {
    const ulong both = ulong(bits[2 * i]) | ulong(bits[2 * i + 1]) << 32;
    out[first + i] = long(ulong(p.low) + both % p.range);
  }
}
