// MetalKernel and MetalKernelByHandle on the CPU: _metal_kernels.so compiles and runs the shader, with this machine's
// Metal (metal_kernel_host.h). It is loaded when the first such kernel runs.

#include <dlfcn.h>

#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/metal_kernel/metal_kernel_host.h"
#include "kernels/metal_kernel/metal_kernel_launch.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/determinism.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

struct Runtime {
  metal_kernels_new_fn* create = nullptr;
  metal_kernels_run_fn* run = nullptr;
  metal_kernels_delete_fn* destroy = nullptr;
  metal_kernels_find_fn* find = nullptr;
  std::string error;
};

const Runtime& GetRuntime() {
  static const Runtime* const runtime = [] {
    auto* const made = new Runtime();
    Dl_info info;
    std::string path =
        dladdr(reinterpret_cast<const void*>(&GetRuntime), &info) != 0 && info.dli_fname != nullptr
            ? info.dli_fname
            : "";
    path = path.substr(0, path.rfind('/') + 1) + "_metal_kernels.so";
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      made->error = std::string("the Metal runtime cannot be loaded (") + dlerror() +
                    "); `pip install 'tensorflow-metal-ops[metal]'`, or `make metal` in the source "
                    "checkout";
      return made;
    }
    made->create = reinterpret_cast<metal_kernels_new_fn*>(dlsym(library, "metal_kernels_new"));
    made->run = reinterpret_cast<metal_kernels_run_fn*>(dlsym(library, "metal_kernels_run"));
    made->destroy =
        reinterpret_cast<metal_kernels_delete_fn*>(dlsym(library, "metal_kernels_delete"));
    made->find = reinterpret_cast<metal_kernels_find_fn*>(dlsym(library, "metal_kernels_find"));
    if (made->create == nullptr || made->run == nullptr || made->destroy == nullptr ||
        made->find == nullptr) {
      made->error = path + " is of another version of metal_ops; build or install both anew";
    }
    return made;
  }();
  return *runtime;
}

metal_kernels_array ToArray(const Tensor& tensor, std::vector<std::vector<int64_t>>* dims) {
  dims->emplace_back();
  for (int i = 0; i < tensor.dims(); ++i) dims->back().push_back(tensor.dim_size(i));
  return {tensor.data(), tensor.TotalBytes(), static_cast<int32_t>(tensor.dtype()), tensor.dims(),
          dims->back().data()};
}

absl::Status ToStatus(int code, const char* message) {
  if (code == 0) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

// Shared by both ops: a kernel, and calls of it.
class MetalKernelCallOp : public OpKernel {
 public:
  explicit MetalKernelCallOp(OpKernelConstruction* context) : OpKernel(context) {
    tensorflow::DataTypeVector params;
    OP_REQUIRES_OK(context, context->GetAttr("Tparams", &params));
    n_params_ = params.size();
  }
  void Compute(OpKernelContext* context) override {
    OP_REQUIRES(context, !atomic_ || !tensorflow::OpDeterminismRequired(),
                absl::UnimplementedError(NotDeterministic(function_)));
    OP_REQUIRES_OK(context, Make());
    const Tensor& launch = context->input(0);
    MetalKernelLaunch read;
    const std::string wrong =
        read.Read(static_cast<const int64_t*>(launch.data()), launch.NumElements(), n_threadgroup_,
                  context->num_outputs());
    OP_REQUIRES(context, wrong.empty(),
                absl::InvalidArgumentError(absl::StrCat("[", function_, "] ", wrong)));
    std::vector<std::vector<int64_t>> dims;
    dims.reserve(context->num_inputs() + context->num_outputs());
    std::vector<metal_kernels_array> inputs, outputs;
    for (int i = 1; i < context->num_inputs(); ++i) {
      inputs.push_back(ToArray(context->input(i), &dims));
    }
    for (int i = 0; i < context->num_outputs(); ++i) {
      tensorflow::TensorShape shape;
      Tensor* output = nullptr;
      OP_REQUIRES_OK(context, tensorflow::TensorShape::BuildTensorShape(read.shapes[i], &shape));
      OP_REQUIRES_OK(context, context->allocate_output(i, shape, &output));
      outputs.push_back(ToArray(*output, &dims));
    }
    const size_t n_inputs = inputs.size() - n_params_;
    const metal_kernels_call call = {static_cast<const int64_t*>(launch.data()),
                                     static_cast<size_t>(launch.NumElements()),
                                     inputs.data(),
                                     inputs.data() + n_inputs,
                                     outputs.data(),
                                     n_inputs,
                                     n_params_,
                                     outputs.size()};
    const char* message = "";
    const int code = GetRuntime().run(kernel_, &call, &message);
    OP_REQUIRES_OK(context, ToStatus(code, message));
  }

 protected:
  // Sees to it that there is a kernel.
  virtual absl::Status Make() = 0;

  std::string function_;
  bool atomic_ = false;
  size_t n_threadgroup_ = 0;
  void* kernel_ = nullptr;

 private:
  size_t n_params_ = 0;
};

class MetalKernelOp : public MetalKernelCallOp {
 public:
  explicit MetalKernelOp(OpKernelConstruction* context) : MetalKernelCallOp(context) {
    std::vector<int32_t> copied;
    OP_REQUIRES_OK(context, context->GetAttr("source", &source_));
    OP_REQUIRES_OK(context, context->GetAttr("function", &function_));
    OP_REQUIRES_OK(context, context->GetAttr("arguments", &arguments_));
    OP_REQUIRES_OK(context, context->GetAttr("copied", &copied));
    OP_REQUIRES_OK(context, context->GetAttr("initialized", &initialized_));
    OP_REQUIRES_OK(context, context->GetAttr("atomic", &atomic_));
    OP_REQUIRES_OK(context, context->GetAttr("fast_math", &fast_math_));
    copied_.assign(copied.begin(), copied.end());
    n_threadgroup_ = CountThreadgroupArguments(arguments_);
  }

  ~MetalKernelOp() override {
    if (kernel_ != nullptr) GetRuntime().destroy(kernel_);
  }

 private:
  // Compiles it. A failure is tried again: a folder may have been full.
  absl::Status Make() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kernel_ != nullptr) return absl::OkStatus();
    const Runtime& runtime = GetRuntime();
    if (!runtime.error.empty()) {
      return absl::NotFoundError(absl::StrCat("[", function_, "] ", runtime.error));
    }
    std::vector<const char*> arguments;
    for (const std::string& argument : arguments_) arguments.push_back(argument.c_str());
    const metal_kernels_spec spec = {
        source_.data(), source_.size(), function_.c_str(), arguments.data(), arguments.size(),
        copied_.data(), copied_.size(), initialized_,      atomic_,          fast_math_};
    const char* message = "";
    const int code = runtime.create(&spec, &kernel_, &message);
    return ToStatus(code, message);
  }

  std::string source_;
  std::vector<std::string> arguments_;
  std::vector<int64_t> copied_;
  bool initialized_ = false, fast_math_ = false;
  std::mutex mutex_;
};

class MetalKernelByHandleOp : public MetalKernelCallOp {
 public:
  explicit MetalKernelByHandleOp(OpKernelConstruction* context) : MetalKernelCallOp(context) {
    int64_t handle = 0;
    OP_REQUIRES_OK(context, context->GetAttr("handle", &handle));
    const Runtime& runtime = GetRuntime();
    OP_REQUIRES(context, runtime.error.empty(),
                absl::NotFoundError(absl::StrCat("[MetalKernelByHandle] ", runtime.error)));
    metal_kernels_kept kept = {};
    const char* message = "";
    const int code = runtime.find(handle, &kept, &message);
    OP_REQUIRES_OK(context, ToStatus(code, message));
    kernel_ = kept.kernel;
    function_ = kept.function;
    n_threadgroup_ = kept.n_threadgroup;
    atomic_ = kept.atomic;
  }

 private:
  absl::Status Make() override { return absl::OkStatus(); }
};

REGISTER_KERNEL_BUILDER(Name("MetalKernel").Device(tensorflow::DEVICE_CPU), MetalKernelOp);
REGISTER_KERNEL_BUILDER(Name("MetalKernelByHandle").Device(tensorflow::DEVICE_CPU),
                        MetalKernelByHandleOp);

}  // namespace
}  // namespace metal_ops
