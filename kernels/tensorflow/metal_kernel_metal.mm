// MetalKernel on the Metal device: the shader in its attribute, on TensorFlow's tensors. And
// MetalKernelByHandle, whose shader this process keeps.

#include <string>
#include <utility>
#include <vector>

#include "kernels/metal_kernel/metal_kernel_call.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

class MetalKernelOp {
 public:
  static constexpr char kOp[] = "MetalKernel";

  explicit MetalKernelOp(KernelConstruction* ctx) {
    std::string source, function;
    std::vector<std::string> arguments;
    std::vector<int64_t> copied;
    bool initialized = false, atomic = false, fast_math = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("source", &source));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("function", &function));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("arguments", &arguments));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("copied", &copied));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("initialized", &initialized));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("atomic", &atomic));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fast_math", &fast_math));
    ReadTypes(ctx);
    OP_REQUIRES_OK(ctx, own_.Set(std::move(source), function, arguments, std::move(copied),
                                 initialized, atomic, fast_math));
  }

  void Compute(KernelContext* ctx) {
    if (kernel_->atomic && OpDeterminismRequired()) {
      return ctx->Fail(Unimplemented(NotDeterministic(kernel_->function)));
    }
    std::vector<Tensor> tensors(static_cast<size_t>(ctx->num_inputs()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      OP_REQUIRES_OK(ctx, ctx->Input(static_cast<int>(i), &tensors[i]));
    }
    const size_t n_outputs = static_cast<size_t>(n_outputs_);
    MetalKernelLaunch launch;
    const std::string wrong = launch.Read(tensors[0].host<int64_t>(), tensors[0].num_elements(),
                                          kernel_->n_threadgroup, n_outputs);
    OP_REQUIRES(ctx, wrong.empty(), InvalidArgument("[", kernel_->function, "] ", wrong));
    std::vector<Tensor> made(n_outputs);
    for (size_t i = 0; i < n_outputs; ++i) {
      OP_REQUIRES_OK(ctx, ctx->AllocateOutput(static_cast<int>(i), launch.shapes[i], &made[i]));
    }
    const size_t first_param = tensors.size() - static_cast<size_t>(n_params_);
    std::vector<metal_kernel::Array> inputs, outputs;
    std::vector<Value> params;
    for (size_t i = 1; i < first_param; ++i) inputs.push_back(ToArray(tensors[i]));
    for (const Tensor& tensor : made) outputs.push_back(ToArray(tensor));
    for (size_t i = first_param; i < tensors.size(); ++i) {
      const Tensor& param = tensors[i];
      params.push_back(metal_kernel::ToParam(param.host<char>(), param.byte_size(), param.dtype()));
    }
    metal_kernel::Call call(*kernel_, std::move(inputs), std::move(outputs), std::move(params));
    OP_REQUIRES_OK(ctx, call.Bind(launch));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) -> Status {
                     return call.Run(encoder, launch, [&](size_t input, size_t output) {
                       return encoder.Copy(tensors[1 + input], made[output]);
                     });
                   }));
  }

 protected:
  MetalKernelOp() = default;

  void ReadTypes(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetListSize("Tparams", &n_params_));
    OP_REQUIRES_OK(ctx, ctx->GetListSize("Tout", &n_outputs_));
  }

  const metal_kernel::Kernel* kernel_ = &own_;

 private:
  static metal_kernel::Array ToArray(const Tensor& tensor) {
    return {tensor, tensor.dtype(), tensor.shape().data(), tensor.shape().size()};
  }

  metal_kernel::Kernel own_;
  int32_t n_params_ = 0, n_outputs_ = 0;
};

class MetalKernelByHandleOp : public MetalKernelOp {
 public:
  static constexpr char kOp[] = "MetalKernelByHandle";

  explicit MetalKernelByHandleOp(KernelConstruction* ctx) {
    int64_t handle = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("handle", &handle));
    OP_REQUIRES_OK(ctx, metal_kernel::FindKept(handle, &kernel_));
    ReadTypes(ctx);
  }
};

REGISTER_METAL_KERNEL(MetalKernelOp, .HostMemory("launch").HostMemory("params"));
REGISTER_METAL_KERNEL(MetalKernelByHandleOp, .HostMemory("launch").HostMemory("params"));

}  // namespace
}  // namespace metal_ops
