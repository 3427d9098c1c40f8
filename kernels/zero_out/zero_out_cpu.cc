// ZeroOut on the CPU.

#include <algorithm>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T>
class ZeroOutOp : public OpKernel {
 public:
  explicit ZeroOutOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& to_zero = context->input(0);
    Tensor* zeroed = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, to_zero.shape(), &zeroed));
    if (to_zero.NumElements() == 0) return;
    const T first = to_zero.flat<T>()(0);
    T* out = zeroed->flat<T>().data();
    std::fill_n(out, zeroed->NumElements(), T(0));
    out[0] = first;
  }
};

#define REGISTER_ZERO_OUT(T)                                                                     \
  REGISTER_KERNEL_BUILDER(Name("ZeroOut").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
                          ZeroOutOp<T>);
TF_CALL_REAL_NUMBER_TYPES(REGISTER_ZERO_OUT)
#undef REGISTER_ZERO_OUT

}  // namespace
}  // namespace metal_ops
