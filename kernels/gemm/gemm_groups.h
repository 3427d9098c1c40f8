// Plain products by threadgroups whose threads really run at once: of a few rows, whose terms the
// simdgroups share, and in blocks, which simdgroups multiply (kernels/gemm/gemm_groups.metal.h).

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_GROUPS_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_GROUPS_H_

#include "kernels/gemm/gemm.h"

namespace metal_ops {

// By the device, the sizes and METAL_OPS_GEMM. `fits`: tiles would be of use.
Status ChooseGemm(const GemmParams& params, DType type, bool fits, GemmWay* way);

// By neither tiles nor threads.
Status RunGemmGroups(id<TF_MetalStream> stream, GemmWay way, const GemmParams& params,
                     const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue,
                     const Tensor& out);

// Parts of long sums, as float32, where products are by blocks: see GemmParams::split_terms.
Status RunGemmParts(id<TF_MetalStream> stream, const GemmParams& params, const Tensor& a,
                    const Tensor& b, const Tensor& parts);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_GROUPS_H_
