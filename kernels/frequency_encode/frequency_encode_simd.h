// Frequency encoding on the CPU, vectorised over points, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_SIMD_H_
#define METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_SIMD_H_

#include <cstdint>

#include "kernels/frequency_encode/frequency_encode_params.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

// outputs[begin:end], rows of n_dims * columns.
void EncodeFrequencies(const FrequencyEncodeParams& params, const float* inputs, int64_t begin,
                       int64_t end, const MutableFloatArray& outputs);

// to[begin:end], rows of n_dims, from d_outputs, shaped like the outputs.
void DifferentiateFrequencies(const FrequencyEncodeParams& params, const FloatArray& d_outputs,
                              const float* inputs, int64_t begin, int64_t end, float* to);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FREQUENCY_ENCODE_FREQUENCY_ENCODE_SIMD_H_
