// Encodes products and convolutions (kernels/msl/gemm.h) on the Metal device. Any library whose
// metallib instantiates the shaders can use it.

#ifndef METAL_OPS_KERNELS_COMMON_GEMM_H_
#define METAL_OPS_KERNELS_COMMON_GEMM_H_

#include <string>
#include <vector>

#include "kernels/common/encoder.h"
#include "kernels/common/fused_ops.h"
#include "kernels/msl/gemm_params.h"

namespace metal_ops {

// What is fused to a product. `args` are the op's, in order.
struct GemmEpilogue {
  FusedOps fused;
  EpilogueParams params = {};
  std::vector<Tensor> args;
};

// The attributes and arguments of a fused op.
class FusedOpsAttrs {
 public:
  Status Get(KernelConstruction* ctx);
  // Reads inputs 2 and on, and checks them beside the output's shape.
  Status ReadArgs(KernelContext* ctx, const char* op, TF_DataType type, const ArgShape& output,
                  int channel_dim, GemmEpilogue* epilogue) const;

 private:
  std::vector<std::string> fused_ops_;
  EpilogueParams params_ = {};
};

// out = a b, finished by the epilogue if there is one. No tensor of these is empty but where the
// sums have no terms. METAL_OPS_GEMM=tiles or =threads chooses the shaders, for tests and
// measurements; otherwise the sizes and the device decide.
Status RunGemm(KernelContext* ctx, const GemmParams& params, const Tensor& a, const Tensor& b,
               const GemmEpilogue* epilogue, const Tensor& out);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_GEMM_H_
