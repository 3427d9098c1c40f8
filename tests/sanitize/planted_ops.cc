// An op with mistakes, compiled and loaded as ours are under the sanitizers, which must see each of
// them.

#include <cstdint>
#include <limits>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("PlantedMistake")
    .Input("x: int32")
    .Output("y: int32")
    .Attr(
        "kind: {'none', 'read_beyond', 'write_beyond', 'use_after_free', 'overflow', 'shift', "
        "'null'}")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

class PlantedMistakeOp : public OpKernel {
 public:
  explicit PlantedMistakeOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("kind", &kind_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& input = context->input(0);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, input.shape(), &output));
    const int32_t* x = input.flat<int32_t>().data();
    int32_t* y = output->flat<int32_t>().data();
    const int64_t n = input.NumElements();
    for (int64_t i = 0; i < n; ++i) y[i] = x[i];
    // TensorFlow rounds no size up: the memory behind the last element is not the tensor's.
    if (kind_ == "read_beyond") y[0] = x[n];
    if (kind_ == "write_beyond") y[n] = 1;
    if (kind_ == "use_after_free") {
      volatile int32_t* gone = new int32_t[4]();
      delete[] gone;
      y[0] = gone[1];
    }
    if (kind_ == "overflow") y[0] = std::numeric_limits<int32_t>::max() + x[0];
    if (kind_ == "shift") y[0] = 1 << (31 + x[0]);
    if (kind_ == "null") y[0] = *(x[0] > 0 ? nullptr : x);
  }

 private:
  std::string kind_;
};

REGISTER_KERNEL_BUILDER(Name("PlantedMistake").Device(tensorflow::DEVICE_CPU), PlantedMistakeOp);

}  // namespace
