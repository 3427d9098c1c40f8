// The inner loops of scans along rays on the CPU, compiled for several instruction sets.

#ifndef METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_SIMD_H_
#define METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_SIMD_H_

#include <cstdint>

#include "kernels/rays/packed_rays.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

struct ScanKind {
  bool sum;  // else a product
  bool exclusive;
  bool reverse;
};

// Rays [begin, end). Inputs and results may be one array.
void ScanRays(const ScanKind& kind, const PackedRays& rays, int64_t begin, int64_t end,
              const FloatArray& in, const MutableFloatArray& out);

// d loss / d x_i = P_i R_i with P_i = product of x_j before i, and R_i = sum over the outputs j
// that x_i is in, of g_j times all other factors behind i: R_i = g_i + x_{i+1} R_{i+1} (inclusive),
// R_i = g_{i+1} + x_{i+1} R_{i+1} (exclusive). The result may be the same array as g or x.
void ProdGradRays(const ScanKind& kind, const PackedRays& rays, int64_t begin, int64_t end,
                  const FloatArray& g, const FloatArray& x, const MutableFloatArray& out);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_SIMD_H_
