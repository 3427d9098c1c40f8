// Softshrink and SoftshrinkGrad on the CPU.

#include "kernels/common/elementwise.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/softshrink/softshrink_checks.h"
#include "kernels/softshrink/softshrink_params.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class SoftshrinkBase : public OpKernel {
 public:
  explicit SoftshrinkBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("lambd", &lambda_));
    ArgShapes attrs(type_string());
    CheckSoftshrinkLambda(&attrs, lambda_);
    OP_REQUIRES_OK(context, ToStatus(attrs));
  }

 protected:
  float lambda_ = 0.0f;
};

class SoftshrinkOp : public SoftshrinkBase {
 public:
  using SoftshrinkBase::SoftshrinkBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& features = context->input(0);
    Tensor* activations = nullptr;
    OP_REQUIRES_OK(
        context, context->forward_input_or_allocate_output({0}, 0, features.shape(), &activations));
    const auto shrink = [lambda = lambda_](float x) { return SoftshrinkValue(x, lambda); };
    Elementwise(context, 2, activations, shrink, features);
  }
};

class SoftshrinkGradOp : public SoftshrinkBase {
 public:
  using SoftshrinkBase::SoftshrinkBase;

  void Compute(OpKernelContext* context) override {
    const Tensor& gradients = context->input(0);
    const Tensor& features = context->input(1);
    ArgShapes shapes(type_string());
    CheckSoftshrinkGrad(&shapes, InputShapes(context));
    OP_REQUIRES_OK(context, ToStatus(shapes));
    Tensor* backprops = nullptr;
    OP_REQUIRES_OK(context,
                   context->forward_input_or_allocate_output({0}, 0, features.shape(), &backprops));
    const auto pass = [lambda = lambda_](float g, float x) {
      return SoftshrinkGradient(g, x, lambda);
    };
    Elementwise(context, 2, backprops, pass, gradients, features);
  }
};

REGISTER_KERNEL_BUILDER(Name("Softshrink").Device(tensorflow::DEVICE_CPU), SoftshrinkOp);
REGISTER_KERNEL_BUILDER(Name("SoftshrinkGrad").Device(tensorflow::DEVICE_CPU), SoftshrinkGradOp);

}  // namespace
}  // namespace metal_ops
