// The inner loops of the fused optimizers on the CPU, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_SIMD_H_
#define METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_SIMD_H_

#include <cstdint>

#include "kernels/fused_optimizer/fused_optimizer_params.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

// A variable's elements [begin, end), in rows of `row` elements. Rows whose gradient is all zero
// are left alone if `skip_zero_rows`; then begin and end are multiples of `row`.
struct UpdateRange {
  int64_t begin;
  int64_t end;
  int64_t row;
  bool skip_zero_rows;
};

// x and g are of `type` (kFloat if Real is double: then they are double too); `hat` may be null.
template <typename Real>
struct AdamArrays {
  FloatType type;
  void* x;
  const void* g;
  Real* m;
  Real* v;
  Real* hat;
};

// `m` may be null: no momentum.
template <typename Real>
struct SgdArrays {
  FloatType type;
  void* x;
  const void* g;
  Real* m;
  bool nesterov;
};

void UpdateAdam(const AdamParams<float>& params, const AdamArrays<float>& arrays,
                const UpdateRange& range);
void UpdateAdam(const AdamParams<double>& params, const AdamArrays<double>& arrays,
                const UpdateRange& range);
void UpdateSgd(const SgdParams<float>& params, const SgdArrays<float>& arrays,
               const UpdateRange& range);
void UpdateSgd(const SgdParams<double>& params, const SgdArrays<double>& arrays,
               const UpdateRange& range);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_OPTIMIZER_FUSED_OPTIMIZER_SIMD_H_
