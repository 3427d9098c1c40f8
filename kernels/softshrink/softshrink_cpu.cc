// Softshrink and SoftshrinkGrad on the CPU.

#include <cstdint>

#include "kernels/common/parallel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

template <typename T>
const T* Data(const Tensor& tensor) {
  return static_cast<const T*>(tensor.data());
}

template <typename T>
class SoftshrinkOp : public OpKernel {
 public:
  explicit SoftshrinkOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("lambd", &lambda_));
    OP_REQUIRES(context, lambda_ >= 0,
                InvalidArgument(type_string(), ": lambd must be 0 or more, got ", lambda_, "."));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& features = context->input(0);
    Tensor* activations = nullptr;
    OP_REQUIRES_OK(
        context, context->forward_input_or_allocate_output({0}, 0, features.shape(), &activations));
    const T* const in = Data<T>(features);
    T* const out = static_cast<T*>(activations->data());
    const float lambda = lambda_;
    ParallelFor(context, features.NumElements(), 2, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float x = static_cast<float>(in[i]);
        // NaN fails both comparisons and must not become 0.
        const float inside = x == x ? 0.0f : x;
        out[i] = static_cast<T>(x > lambda ? x - lambda : x < -lambda ? x + lambda : inside);
      }
    });
  }

 private:
  float lambda_ = 0.0f;
};

template <typename T>
class SoftshrinkGradOp : public OpKernel {
 public:
  explicit SoftshrinkGradOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("lambd", &lambda_));
    OP_REQUIRES(context, lambda_ >= 0,
                InvalidArgument(type_string(), ": lambd must be 0 or more, got ", lambda_, "."));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& gradients = context->input(0);
    const Tensor& features = context->input(1);
    OP_REQUIRES(context, gradients.shape() == features.shape(),
                InvalidArgument("SoftshrinkGrad: gradients must be shaped like features, ",
                                features.shape().DebugString(), ", got ",
                                gradients.shape().DebugString(), "."));
    Tensor* backprops = nullptr;
    OP_REQUIRES_OK(
        context, context->forward_input_or_allocate_output({0}, 0, gradients.shape(), &backprops));
    const T* const g = Data<T>(gradients);
    const T* const in = Data<T>(features);
    T* const out = static_cast<T*>(backprops->data());
    const float lambda = lambda_;
    ParallelFor(context, features.NumElements(), 2, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float x = static_cast<float>(in[i]);
        out[i] = x >= -lambda && x <= lambda ? T(0) : g[i];
      }
    });
  }

 private:
  float lambda_ = 0.0f;
};

#define REGISTER_SOFTSHRINK(T)                                                                    \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("Softshrink").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), SoftshrinkOp<T>); \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("SoftshrinkGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"),               \
      SoftshrinkGradOp<T>)
REGISTER_SOFTSHRINK(float);
REGISTER_SOFTSHRINK(Eigen::half);
REGISTER_SOFTSHRINK(Eigen::bfloat16);
#undef REGISTER_SOFTSHRINK

}  // namespace
}  // namespace metal_ops
