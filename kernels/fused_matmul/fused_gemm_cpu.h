// A fused product or convolution on the CPU: what MetalFusedMatMul and MetalFusedConv2D share.

#ifndef METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_CPU_H_
#define METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_CPU_H_

#include <string>
#include <vector>

#include "kernels/common/fused_ops.h"
#include "kernels/msl/gemm_params.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {

// The attributes that say what is fused.
class FusedGemmOp : public tensorflow::OpKernel {
 public:
  explicit FusedGemmOp(tensorflow::OpKernelConstruction* context);

 protected:
  // Checks args, inputs 2 and on, beside the output's shape.
  tensorflow::Status CheckArgs(tensorflow::OpKernelContext* context, const ArgShape& output,
                               int channel_dim, FusedOps* fused) const;

  // out = epilogue(a b), with a, b and args the inputs. No tensor but those of args may be empty
  // but where sums have no terms.
  tensorflow::Status Run(tensorflow::OpKernelContext* context, const FusedOps& fused,
                         const GemmParams& params, tensorflow::Tensor* out) const;

 private:
  std::vector<std::string> fused_ops_;
  EpilogueParams epilogue_ = {};
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_MATMUL_FUSED_GEMM_CPU_H_
