// MetalFusedConv2D on the CPU.

#include <string>
#include <vector>

#include "kernels/common/gemm_plan.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/fused_matmul/fused_gemm_cpu.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class FusedConv2DOp : public FusedGemmOp {
 public:
  explicit FusedConv2DOp(OpKernelConstruction* context) : FusedGemmOp(context) {
    std::string data_format;
    OP_REQUIRES_OK(context, context->GetAttr("strides", &attrs_.strides));
    OP_REQUIRES_OK(context, context->GetAttr("dilations", &attrs_.dilations));
    OP_REQUIRES_OK(context, context->GetAttr("explicit_paddings", &attrs_.explicit_paddings));
    OP_REQUIRES_OK(context, context->GetAttr("padding", &attrs_.padding));
    OP_REQUIRES_OK(context, context->GetAttr("data_format", &data_format));
    attrs_.nchw = data_format == "NCHW";
    ArgShapes shapes(type_string());
    CheckConvAttrs(&shapes, attrs_);
    OP_REQUIRES_OK(context, ToStatus(shapes));
  }

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    ConvSizes sizes;
    CheckConv(&shapes, attrs_, ToArgShape(context->input(0).shape()),
              ToArgShape(context->input(1).shape()), &sizes);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const std::vector<int64_t> output = sizes.OutputShape(attrs_.nchw);
    FusedOps fused;
    OP_REQUIRES_OK(context, CheckArgs(context, ArgShape(output), attrs_.dim_c(), &fused));
    Tensor* out = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape(output), &out));
    if (out->NumElements() == 0) return;
    const GemmParams params = PlanConv(&shapes, sizes, attrs_.nchw);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    OP_REQUIRES_OK(context, Run(context, fused, params, out));
  }

 private:
  ConvAttrs attrs_;
};

#define REGISTER_FUSED_CONV2D(type)                                                      \
  REGISTER_KERNEL_BUILDER(                                                               \
      Name("MetalFusedConv2D").Device(tensorflow::DEVICE_CPU).TypeConstraint<type>("T"), \
      FusedConv2DOp)
REGISTER_FUSED_CONV2D(float);
REGISTER_FUSED_CONV2D(Eigen::half);
REGISTER_FUSED_CONV2D(Eigen::bfloat16);
#undef REGISTER_FUSED_CONV2D

}  // namespace
}  // namespace metal_ops
