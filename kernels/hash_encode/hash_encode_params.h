// Hash encoding's constants and structs, read by host code and by the Metal shader alike: plain
// C-like types only.
//
// The numerics they stand for: `pos = fma(x, scale, 0.5)` in float32, cell = floor(pos), weight =
// fract(pos); a corner's row is `sum_d c_d * stride_d` (dense level) or the XOR of `c_d * prime_d`
// (hashed level), in uint32, modulo the level's size.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARAMS_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#define METAL_OPS_CONSTANT constant
#else
#include <stdint.h>
#define METAL_OPS_CONSTANT static const
#endif

#define HASH_ENCODE_MIN_DIMS 2
#define HASH_ENCODE_MAX_DIMS 4
#define HASH_ENCODE_MAX_LEVELS 32
#define HASH_ENCODE_MAX_FEATURES 8

// Those of instant-ngp / tiny-cuda-nn. The first is 1, so neighbours along x often share a cache
// line.
METAL_OPS_CONSTANT uint32_t kHashEncodePrimes[7] = {
    1u, 2654435761u, 805459861u, 3674653429u, 2097192037u, 1434869437u, 2165219737u};

// One level of the grid. Filled by HashEncodeLevels (hash_encode_levels.h), and nowhere else.
struct HashEncodeLevel {
  float scale;          // grid steps along an edge of the unit cube
  uint32_t resolution;  // ceil(scale) + 1
  uint32_t offset;      // first row in the table
  uint32_t size;        // rows, at least 1
  // What a corner's coordinate is multiplied by: primes if hashed, else dense strides (0 once they
  // exceed `size`).
  uint32_t factors[HASH_ENCODE_MAX_DIMS];
  uint32_t hashed;      // 1: combine with XOR, 0: with +
  uint32_t mask;        // size - 1 if size is a power of two, else 0
  uint32_t reciprocal;  // min(floor(2^32 / size), 2^32 - 1): row % size without a division
  uint32_t reserved;    // keeps the size a multiple of 16
};
static_assert(sizeof(HashEncodeLevel) == 48, "host and shader must agree");

// What one dispatch is told.
struct HashEncodeParams {
  uint32_t n_points;
  uint32_t first_point;  // of this dispatch, where N takes several
  uint32_t n_levels;
  uint32_t smoothstep;  // 0: linear interpolation
};
static_assert(sizeof(HashEncodeParams) == 16, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARAMS_H_
