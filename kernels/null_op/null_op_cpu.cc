// NullOp on the CPU. Part 3 of 6.

#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T>
class NullOp : public OpKernel {
 public:
  // Runs once a node. Attributes are read here, and whatever can be checked is checked here.
  explicit NullOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
  }

  // Runs once a call, from several threads at once: members are read only.
  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    // The input's memory is reused for the output where nobody else needs it.
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    // Tensors may be unaligned (slices), so no flat<T>(), which insists.
    const T* in = static_cast<const T*>(x.data());
    T* out = static_cast<T*>(y->data());
    const float scale = scale_;
    // TensorFlow's own threads, with a cost estimate in cycles an element: no OpenMP, no
    // std::thread.
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, x.NumElements(), /*cost_per_unit=*/2,
                      [in, out, scale](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          out[i] = static_cast<T>(static_cast<float>(in[i]) * scale);
                        }
                      });
  }

 private:
  float scale_ = 1.0f;
};

// Each kernel registers itself, a dtype at a time.
#define REGISTER_NULL_OP(T)                                                                     \
  REGISTER_KERNEL_BUILDER(Name("NullOp").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
                          NullOp<T>)
REGISTER_NULL_OP(float);
REGISTER_NULL_OP(Eigen::half);
REGISTER_NULL_OP(Eigen::bfloat16);
#undef REGISTER_NULL_OP

}  // namespace
}  // namespace metal_ops
