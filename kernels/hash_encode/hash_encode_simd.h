// The inner loops of the CPU kernels, each compiled for several instruction sets and chosen at run
// time (Highway).
//
// A level is worked on in blocks of points: first the rows and weights of all corners, vectorised
// over points, into a small buffer; then the table's rows, one narrow load a corner, prefetched
// ahead (gather instructions were no faster where measured). A thread works on one level at a time,
// as a level fits the cache where the table does not; so values that belong to points are kept
// level by level ("staged", float32 [levels, points, features]) and transposed at the end.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_SIMD_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_SIMD_H_

#include <cstdint>

#include "kernels/hash_encode/hash_encode_params.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

// A validated call. Pointers need no more alignment than their elements have.
struct HashEncodeCall {
  int64_t n_points;
  int64_t n_dims;
  int64_t n_features;
  int64_t n_levels;
  FloatType type;
  bool smoothstep;
  const HashEncodeLevel* levels;
  const float* points;    // [n_points, n_dims]
  const float* tangents;  // the same, or null: then the op is not a Jvp one
  const void* table;      // [rows, n_features] of `type`
  const void* d_outputs;  // [n_points, n_levels * n_features] of `type`, or null
};

// Points [begin, end).
struct PointRange {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Sums of a part of a level carry this many rows more than they hold, where rows of other parts are
// dumped.
constexpr int64_t kDumpRows = int64_t{1} << HASH_ENCODE_MAX_DIMS;

// Level `l` of HashEncode, or of HashEncodeJvp if there are tangents: features [range, n_features].
void EncodeLevel(const HashEncodeCall& call, int64_t l, PointRange range, float* features);

// Adds level `l` of HashEncodePointGrad / HashEncodeJvpPointGrad to gradients [range, n_dims], or
// overwrites them. `d_outputs` is the level's [range, n_features].
void SumPointGradients(const HashEncodeCall& call, int64_t l, PointRange range,
                       const float* d_outputs, bool overwrite, float* gradients);

// Adds level `l` of HashEncodeGrad / HashEncodeJvpGrad, rows [row_begin, row_end), to `sums`, which
// starts at row_begin; each row's sum runs in the order of the points. Unless the rows are all of
// the level's, `sums` has kDumpRows more. `d_outputs` is the level's [range, n_features].
void SumTableGradients(const HashEncodeCall& call, int64_t l, PointRange range,
                       const float* d_outputs, uint32_t row_begin, uint32_t row_end, float* sums);

// Features of a range of points, level by level.
struct Staged {
  float* levels;  // [n_levels, range, n_features]
  PointRange range;
  float* At(const HashEncodeCall& call, int64_t l, int64_t point) const {
    return levels + (l * range.size() + point - range.begin) * call.n_features;
  }
};
// outputs[range] of [n_points, n_levels * n_features], rounded to the call's type.
void StagedToOutputs(const HashEncodeCall& call, const Staged& staged, PointRange range,
                     void* outputs);
// The same backwards, from call.d_outputs[range].
void IncomingToStaged(const HashEncodeCall& call, PointRange range, const Staged& staged);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_SIMD_H_
