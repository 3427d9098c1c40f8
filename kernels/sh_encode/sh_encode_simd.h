// Spherical harmonics on the CPU, vectorised over points, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_SIMD_H_
#define METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_SIMD_H_

#include <cstdint>

#include "kernels/sh_encode/sh_encode_params.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

// outputs[begin:end] of [points, degree^2].
void EncodeSh(const ShEncodeParams& params, const float* directions, int64_t begin, int64_t end,
              const MutableFloatArray& outputs);

// to[begin:end] of [points, 3] from d_outputs [points, degree^2].
void DifferentiateSh(const ShEncodeParams& params, const FloatArray& d_outputs,
                     const float* directions, int64_t begin, int64_t end, float* to);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_SH_ENCODE_SH_ENCODE_SIMD_H_
