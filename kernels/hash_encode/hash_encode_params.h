// Hash encoding's constants and structs, read by host code and by the Metal shader alike: plain
// C-like types only.
//
// The numerics they stand for: `pos = fma(x, scale, 0.5)` in float32, cell = floor(pos), weight =
// fract(pos); a corner's row is `sum_d c_d * stride_d` (dense level) or the XOR of `c_d * prime_d`
// (hashed level), in uint32, modulo the level's size.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARAMS_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARAMS_H_

#include "kernels/hash_encode/hash_grid_params.h"

#define HASH_ENCODE_MIN_DIMS 2
#define HASH_ENCODE_MAX_LEVELS 32
#define HASH_ENCODE_MAX_FEATURES 8

// Arguments of one dispatch.
struct HashEncodeParams {
  uint32_t n_points;
  uint32_t n_levels;
  uint32_t smoothstep;  // 0: linear interpolation
};
static_assert(sizeof(HashEncodeParams) == 12, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_PARAMS_H_
