// A third party's op, first half: op and CPU kernel in the style of samples for TensorFlow 2.12,
// with Status::OK().

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

using namespace tensorflow;

REGISTER_OP("SampleSaxpy")
    .Attr("T: {float}")
    .Attr("a: float")
    .Input("x: T")
    .Input("y: T")
    .Output("z: T")
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(0));
      return Status::OK();
    });

class SampleSaxpyOp : public OpKernel {
 public:
  explicit SampleSaxpyOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("a", &a_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* z = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(), &z));
    z->flat<float>() = context->input(0).flat<float>() * a_ + context->input(1).flat<float>();
    std::cout << "SampleSaxpy ran on the CPU\n";
  }

 private:
  float a_;
};

REGISTER_KERNEL_BUILDER(Name("SampleSaxpy").Device(DEVICE_CPU), SampleSaxpyOp);
