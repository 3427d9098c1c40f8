// FrequencyEncode and FrequencyEncodeGrad on the CPU. A point is done by one thread: deterministic.

#include "kernels/common/parallel.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/frequency_encode/frequency_encode_checks.h"
#include "kernels/frequency_encode/frequency_encode_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class FrequencyEncodeOp : public OpKernel {
 public:
  explicit FrequencyEncodeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("n_frequencies", &attrs_.n_frequencies));
    OP_REQUIRES_OK(context, context->GetAttr("include_input", &attrs_.include_input));
    OP_REQUIRES_OK(context, context->GetAttr("times_pi", &attrs_.times_pi));
    ArgShapes shapes(type_string());
    CheckFrequencyEncodeAttrs(&shapes, attrs_);
    OP_REQUIRES_OK(context, ToStatus(shapes));
  }

  void Compute(OpKernelContext* context) override {
    ArgShapes shapes(type_string());
    CheckFrequencyEncode(&shapes, InputShapes(context), attrs_);
    OP_REQUIRES_OK(context, ToStatus(shapes));
    const int64_t n = shapes.Size("points"), n_dims = shapes.Size("dims");
    const bool gradient = context->num_inputs() == 2;
    const Tensor& inputs = context->input(gradient ? 1 : 0);
    Tensor* outputs = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(
                     0, TensorShape({n, gradient ? n_dims : n_dims * attrs_.Columns()}), &outputs));
    if (outputs->NumElements() == 0) return;
    const FrequencyEncodeParams params = MakeFrequencyEncodeParams(n, n_dims, attrs_);
    const float* const x = static_cast<const float*>(inputs.data());
    const int64_t cycles = 5 + n_dims * attrs_.Columns() * 3;
    if (gradient) {
      const FloatArray from = ToFloatArray(context->input(0));
      float* const to = static_cast<float*>(outputs->data());
      ParallelFor(context, n, cycles, [&](int64_t begin, int64_t end) {
        DifferentiateFrequencies(params, from, x, begin, end, to);
      });
    } else {
      const MutableFloatArray to = ToMutableFloatArray(outputs);
      ParallelFor(context, n, cycles, [&](int64_t begin, int64_t end) {
        EncodeFrequencies(params, x, begin, end, to);
      });
    }
  }

 private:
  FrequencyEncodeAttrs attrs_;
};

REGISTER_KERNEL_BUILDER(Name("FrequencyEncode").Device(tensorflow::DEVICE_CPU), FrequencyEncodeOp);
REGISTER_KERNEL_BUILDER(Name("FrequencyEncodeGrad").Device(tensorflow::DEVICE_CPU),
                        FrequencyEncodeOp);

}  // namespace
}  // namespace metal_ops
