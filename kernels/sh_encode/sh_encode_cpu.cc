// ShEncode and ShEncodeGrad on the CPU. A point is done by one thread: deterministic.

#include "kernels/common/parallel.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/sh_encode/sh_encode_checks.h"
#include "kernels/sh_encode/sh_encode_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class ShBase : public OpKernel {
 public:
  explicit ShBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("degree", &degree_));
    ArgShapes shapes(type_string());
    CheckShDegree(&shapes, degree_);
    OP_REQUIRES_OK(context, ToStatus(shapes));
  }

 protected:
  // -1: an error was reported.
  int64_t NumPoints(OpKernelContext* context) const {
    ArgShapes shapes(type_string());
    CheckShEncode(&shapes, InputShapes(context), degree_);
    if (shapes.ok()) return shapes.Size("points");
    context->SetStatus(ToStatus(shapes));
    return -1;
  }

  int64_t degree_ = 0;
};

class ShEncodeOp : public ShBase {
 public:
  using ShBase::ShBase;

  void Compute(OpKernelContext* context) override {
    const int64_t n = NumPoints(context);
    if (n < 0) return;
    Tensor* outputs = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({n, degree_ * degree_}), &outputs));
    const ShEncodeParams params = MakeShEncodeParams(n, degree_);
    const float* const directions = static_cast<const float*>(context->input(0).data());
    const MutableFloatArray to = ToMutableFloatArray(outputs);
    ParallelFor(context, n, 2 * degree_ * degree_,
                [&](int64_t begin, int64_t end) { EncodeSh(params, directions, begin, end, to); });
  }
};

class ShEncodeGradOp : public ShBase {
 public:
  using ShBase::ShBase;

  void Compute(OpKernelContext* context) override {
    const int64_t n = NumPoints(context);
    if (n < 0) return;
    Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({n, 3}), &gradient));
    const ShEncodeParams params = MakeShEncodeParams(n, degree_);
    const FloatArray from = ToFloatArray(context->input(0));
    const float* const directions = static_cast<const float*>(context->input(1).data());
    float* const to = static_cast<float*>(gradient->data());
    ParallelFor(context, n, 4 * degree_ * degree_, [&](int64_t begin, int64_t end) {
      DifferentiateSh(params, from, directions, begin, end, to);
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("ShEncode").Device(tensorflow::DEVICE_CPU), ShEncodeOp);
REGISTER_KERNEL_BUILDER(Name("ShEncodeGrad").Device(tensorflow::DEVICE_CPU), ShEncodeGradOp);

}  // namespace
}  // namespace metal_ops
