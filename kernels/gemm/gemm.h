// Encodes products and convolutions (kernels/gemm/gemm.metal.h) on the Metal device. Any library
// whose metallib instantiates the shaders can use it.

#ifndef METAL_OPS_KERNELS_GEMM_GEMM_H_
#define METAL_OPS_KERNELS_GEMM_GEMM_H_

#include <functional>
#include <vector>

#include "kernels/gemm/fused_ops.h"
#include "kernels/gemm/gemm_params.h"
#include "kernels/runtime/encoder.h"

namespace metal_ops {

// What is fused to a product. `args` are the op's, in order.
struct GemmEpilogue {
  FusedOps fused;
  EpilogueParams params = {};
  std::vector<const Tensor*> args;
};

// Whether the shaders that work in tiles are to be used, where `fits` says that they would be of
// use: the device decides, or METAL_OPS_GEMM.
Status ChooseTiles(bool fits, bool* tiles);

// out = a b, finished by the epilogue if there is one. No tensor of these is empty but where the
// sums have no terms; `floats` gives temporary memory. METAL_OPS_GEMM=tiles or =threads chooses the
// shaders, for tests and measurements; otherwise the sizes and the device decide.
Status RunGemm(id<TF_MetalStream> stream,
               const std::function<Status(const Shape&, Tensor*)>& floats, const GemmParams& params,
               const Tensor& a, const Tensor& b, const GemmEpilogue* epilogue, const Tensor& out);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_GEMM_H_
