// The inner loops of the CPU kernels, each compiled for several instruction sets and chosen at run
// time (Highway).
//
// A level is worked on in blocks of points: first the rows and weights of all corners, vectorised
// over points, into a small buffer; then the table's rows, one narrow load a corner, prefetched
// ahead. (AVX-512 gathers are microcoded on some CPUs and were no faster on others: the loop waits
// for memory.)

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_SIMD_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_SIMD_H_

#include <cstdint>

#include "kernels/hash_encode/hash_encode_params.h"

namespace metal_ops {

enum class FeatureType { kFloat, kHalf, kBfloat16 };

inline int64_t SizeOf(FeatureType type) { return type == FeatureType::kFloat ? 4 : 2; }

// A validated call. Pointers need no more alignment than their elements have.
struct HashEncodeCall {
  int64_t n_points;
  int64_t n_dims;
  int64_t n_features;
  int64_t n_levels;
  FeatureType type;
  bool smoothstep;
  const HashEncodeLevel* levels;
  const float* points;    // [n_points, n_dims]
  const float* tangents;  // the same, or null: then the op is not a Jvp one
  const void* table;      // [rows, n_features] of `type`
  const void* incoming;   // [n_points, n_levels * n_features] of `type`, or null
};

// Sums of a table level carry this many rows more than they hold, where rows of other ranges are
// dumped.
constexpr int64_t kDumpRows = 1 << HASH_ENCODE_MAX_DIMS;

// outputs[begin:end] of HashEncode, or of HashEncodeJvp if there are tangents.
void EncodePoints(const HashEncodeCall& call, int64_t begin, int64_t end, void* outputs);

// gradients[begin:end] of HashEncodePointGrad / HashEncodeJvpPointGrad.
void SumPointGradients(const HashEncodeCall& call, int64_t begin, int64_t end, float* gradients);

// Adds the gradients of a level's rows [row_begin, row_end) to `sums`, which starts at row_begin,
// over all points in order. Unless the range is the whole level, `sums` has kDumpRows rows more.
void SumTableGradients(const HashEncodeCall& call, int64_t level, uint32_t row_begin,
                       uint32_t row_end, float* sums);

// Rounds to nearest even. `type` is not kFloat.
void RoundFromFloat(FeatureType type, const float* from, int64_t n, void* to);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_SIMD_H_
