// MetalFusedMatMul on the CPU.

#include "kernels/common/gemm_plan.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/fused_matmul/fused_gemm_cpu.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class FusedMatMulOp : public FusedGemmOp {
 public:
  explicit FusedMatMulOp(OpKernelConstruction* context) : FusedGemmOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(context, context->GetAttr("transpose_b", &transpose_b_));
  }

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    const ArgShape a = ToArgShape(context->input(0).shape());
    const ArgShape b = ToArgShape(context->input(1).shape());
    ArgShape product;
    CheckMatMul(&shapes, a, b, transpose_a_, transpose_b_, &product);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    FusedOps fused;
    OP_REQUIRES_OK(context, CheckArgs(context, product, product.rank() - 1, &fused));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, tensorflow::TensorShape(product.dims), &out));
    if (out->NumElements() == 0) return;
    const GemmParams params =
        PlanMatMul(&shapes, ToMatMulSizes(a, b, transpose_a_, product), transpose_a_, transpose_b_);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    OP_REQUIRES_OK(context, Run(context, fused, params, out));
  }

 private:
  bool transpose_a_ = false, transpose_b_ = false;
};

#define REGISTER_FUSED_MATMUL(type)                                                      \
  REGISTER_KERNEL_BUILDER(                                                               \
      Name("MetalFusedMatMul").Device(tensorflow::DEVICE_CPU).TypeConstraint<type>("T"), \
      FusedMatMulOp)
REGISTER_FUSED_MATMUL(float);
REGISTER_FUSED_MATMUL(Eigen::half);
REGISTER_FUSED_MATMUL(Eigen::bfloat16);
#undef REGISTER_FUSED_MATMUL

}  // namespace
}  // namespace metal_ops
