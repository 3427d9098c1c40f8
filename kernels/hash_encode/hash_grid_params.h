// One level of the hash grid, read by host code and by shaders alike. The formulas are in
// hash_grid.h.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_GRID_PARAMS_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_GRID_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define HASH_ENCODE_MAX_DIMS 4

// One level of the grid. Filled by HashEncodeLevels (kernels/hash_encode/hash_encode_levels.h), and
// nowhere else.
struct HashEncodeLevel {
  float scale;          // grid steps along an edge of the unit cube
  uint32_t resolution;  // ceil(scale) + 1
  uint32_t offset;      // first row in the table
  uint32_t size;        // rows, at least 1
  // Factors of a corner's coordinates: primes if hashed, else dense strides (0 once they exceed
  // `size`).
  uint32_t factors[HASH_ENCODE_MAX_DIMS];
  uint32_t hashed;      // 1: combine with XOR, 0: with +
  uint32_t mask;        // size - 1 if size is a power of two, else 0
  uint32_t reciprocal;  // min(floor(2^32 / size), 2^32 - 1): row % size without a division
  uint32_t reserved;    // keeps the size a multiple of 16
};
static_assert(sizeof(HashEncodeLevel) == 48, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_GRID_PARAMS_H_
