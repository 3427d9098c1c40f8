// ResourceFusedAdam and ResourceFusedSgd on the CPU: one pass over memory, shared out on
// TensorFlow's intra-op pool.

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/fused_optimizer/fused_optimizer_checks.h"
#include "kernels/fused_optimizer/fused_optimizer_simd.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Status;
using tensorflow::Tensor;
using tensorflow::Var;
using tensorflow::errors::FailedPrecondition;

// Elements that a thread should get at least: about a page of each array.
constexpr int64_t kCycles = 4;

// The variables of one update, locked until it is done.
class LockedVariables {
 public:
  // `names` in the order of the op's first inputs. All are checked to be of the gradient's shape,
  // and to have memory of their own: whoever has read one keeps what was read.
  Status Init(OpKernelContext* context, const std::string& op,
              const std::vector<std::string>& names, const std::vector<tensorflow::DataType>& types,
              const Tensor& gradient) {
    ArgShapes checks(op);
    for (size_t i = 0; i < names.size(); ++i) {
      tensorflow::core::RefCountPtr<Var> var;
      if (!LookupResource(context, HandleFromInput(context, i), &var).ok()) {
        return FailedPrecondition(NoValue(op, names[i]));
      }
      for (const auto& other : vars_) {
        CheckDistinct(&checks, names[i], other.get() != var.get());
      }
      vars_.push_back(std::move(var));
    }
    TF_RETURN_IF_ERROR(ToStatus(checks));
    // In order of address, as every op does that locks several.
    std::vector<tensorflow::mutex*> mutexes;
    for (const auto& var : vars_) mutexes.push_back(var->mu());
    std::sort(mutexes.begin(), mutexes.end());
    for (tensorflow::mutex* mutex : mutexes) {
      locks_.push_back(std::make_unique<tensorflow::mutex_lock>(*mutex));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      Tensor* const tensor = vars_[i]->tensor();
      if (!vars_[i]->is_initialized) {
        return FailedPrecondition(NoValue(op, names[i]));
      }
      if (tensor->dtype() != types[i] || tensor->shape() != gradient.shape()) {
        CheckVariable(&checks, {names[i], types[i], tensor->dtype(), ToArgShape(tensor->shape())},
                      ToArgShape(gradient.shape()));
        return ToStatus(checks);
      }
      if (vars_[i]->copy_on_read_mode.load() || !tensor->RefCountIsOne()) {
        Tensor own;
        TF_RETURN_IF_ERROR(context->allocate_temp(tensor->dtype(), tensor->shape(), &own));
        // Not memcpy: an empty tensor has no address.
        std::copy_n(static_cast<const char*>(tensor->data()), tensor->TotalBytes(),
                    static_cast<char*>(own.data()));
        *tensor = own;
      }
    }
    return tensorflow::OkStatus();
  }

  void* data(int i) const { return vars_[i]->tensor()->data(); }

 private:
  // Unlocked before they are let go of: members are destroyed from the last.
  std::vector<tensorflow::core::RefCountPtr<Var>> vars_;
  std::vector<std::unique_ptr<tensorflow::mutex_lock>> locks_;
};

class OptimizerBase : public OpKernel {
 public:
  explicit OptimizerBase(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("T", &type_));
    OP_REQUIRES_OK(context, context->GetAttr("skip_zero_rows", &skip_zero_rows_));
    state_ = type_ == tensorflow::DT_DOUBLE ? type_ : tensorflow::DT_FLOAT;
  }

  // Runs where its inputs were made: big variables use all threads anyway, and to wake one takes
  // longer than to update a small one.
  bool IsExpensive() override { return false; }

 protected:
  // A scalar input.
  template <typename Value>
  static Status Scalar(OpKernelContext* context, const char* name, Value* value) {
    const Tensor* tensor = nullptr;
    TF_RETURN_IF_ERROR(context->input(name, &tensor));
    ArgShapes checks(context->op_kernel().type_string());
    CheckScalar(&checks, name, ToArgShape(tensor->shape()));
    TF_RETURN_IF_ERROR(ToStatus(checks));
    std::memcpy(value, tensor->data(), sizeof(Value));
    return tensorflow::OkStatus();
  }

  void ForRanges(OpKernelContext* context, const Tensor& gradient,
                 const std::function<void(const UpdateRange&)>& update) const {
    const int64_t n = gradient.NumElements();
    if (n == 0) return;
    const int64_t n_rows = gradient.dims() == 0 ? 1 : gradient.dim_size(0);
    const int64_t row = skip_zero_rows_ ? n / n_rows : 1;
    const bool skip = skip_zero_rows_;
    ParallelFor(context, n / row, kCycles * row,
                [&](int64_t begin, int64_t end) { update({begin * row, end * row, row, skip}); });
  }

  tensorflow::DataType type_ = tensorflow::DT_FLOAT;
  tensorflow::DataType state_ = tensorflow::DT_FLOAT;  // of the moments
  bool skip_zero_rows_ = false;
};

class FusedAdamOp : public OptimizerBase {
 public:
  explicit FusedAdamOp(OpKernelConstruction* context) : OptimizerBase(context) {
    int n_hats;
    OP_REQUIRES_OK(context, context->GetAttr("n_hats", &n_hats));
    ArgShapes checks(type_string());
    CheckAtMostOne(&checks, "hats", n_hats);
    OP_REQUIRES_OK(context, ToStatus(checks));
    amsgrad_ = n_hats == 1;
    OP_REQUIRES_OK(context, context->GetAttr("float32_powers", &float32_powers_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context, context->input("gradient", &gradient));
    AdamHyperparameters h = {};
    h.float32_powers = float32_powers_;
    OP_REQUIRES_OK(context, Scalar(context, "step", &h.step));
    OP_REQUIRES_OK(context, Scalar(context, "lr", &h.lr));
    OP_REQUIRES_OK(context, Scalar(context, "beta1", &h.beta1));
    OP_REQUIRES_OK(context, Scalar(context, "beta2", &h.beta2));
    OP_REQUIRES_OK(context, Scalar(context, "epsilon", &h.epsilon));
    OP_REQUIRES_OK(context, Scalar(context, "weight_decay", &h.weight_decay));
    ArgShapes checks(type_string());
    CheckAdam(&checks, h);
    OP_REQUIRES_OK(context, ToStatus(checks));

    LockedVariables variables;
    std::vector<std::string> names = {"var", "m", "v"};
    std::vector<tensorflow::DataType> types = {type_, state_, state_};
    if (amsgrad_) {
      names.push_back("hats[0]");
      types.push_back(state_);
    }
    OP_REQUIRES_OK(context, variables.Init(context, type_string(), names, types, *gradient));
    if (type_ == tensorflow::DT_DOUBLE) {
      Run<double>(context, h, variables, *gradient);
    } else {
      Run<float>(context, h, variables, *gradient);
    }
  }

 private:
  template <typename Real>
  void Run(OpKernelContext* context, const AdamHyperparameters& h, const LockedVariables& variables,
           const Tensor& gradient) {
    const AdamParams<Real> params = ToParams<Real>(h);
    const AdamArrays<Real> arrays = {ToFloatType(type_),
                                     variables.data(0),
                                     gradient.data(),
                                     static_cast<Real*>(variables.data(1)),
                                     static_cast<Real*>(variables.data(2)),
                                     amsgrad_ ? static_cast<Real*>(variables.data(3)) : nullptr};
    ForRanges(context, gradient,
              [&](const UpdateRange& range) { UpdateAdam(params, arrays, range); });
  }

  bool amsgrad_ = false;
  bool float32_powers_ = false;
};

class FusedSgdOp : public OptimizerBase {
 public:
  explicit FusedSgdOp(OpKernelConstruction* context) : OptimizerBase(context) {
    int n_momenta;
    OP_REQUIRES_OK(context, context->GetAttr("n_momenta", &n_momenta));
    OP_REQUIRES_OK(context, context->GetAttr("nesterov", &nesterov_));
    ArgShapes checks(type_string());
    CheckAtMostOne(&checks, "momenta", n_momenta);
    OP_REQUIRES_OK(context, ToStatus(checks));
    with_momentum_ = n_momenta == 1;
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* gradient = nullptr;
    OP_REQUIRES_OK(context, context->input("gradient", &gradient));
    double lr, momentum, weight_decay;
    OP_REQUIRES_OK(context, Scalar(context, "lr", &lr));
    OP_REQUIRES_OK(context, Scalar(context, "momentum", &momentum));
    OP_REQUIRES_OK(context, Scalar(context, "weight_decay", &weight_decay));
    LockedVariables variables;
    std::vector<std::string> names = {"var"};
    std::vector<tensorflow::DataType> types = {type_};
    if (with_momentum_) {
      names.push_back("momenta[0]");
      types.push_back(state_);
    }
    OP_REQUIRES_OK(context, variables.Init(context, type_string(), names, types, *gradient));
    if (type_ == tensorflow::DT_DOUBLE) {
      Run<double>(context, {lr, momentum, lr * weight_decay}, variables, *gradient);
    } else {
      Run<float>(context,
                 {static_cast<float>(lr), static_cast<float>(momentum),
                  static_cast<float>(lr * weight_decay)},
                 variables, *gradient);
    }
  }

 private:
  template <typename Real>
  void Run(OpKernelContext* context, const SgdParams<Real>& params,
           const LockedVariables& variables, const Tensor& gradient) {
    const SgdArrays<Real> arrays = {
        ToFloatType(type_), variables.data(0), gradient.data(),
        with_momentum_ ? static_cast<Real*>(variables.data(1)) : nullptr, nesterov_};
    ForRanges(context, gradient,
              [&](const UpdateRange& range) { UpdateSgd(params, arrays, range); });
  }

  bool with_momentum_ = false;
  bool nesterov_ = false;
};

REGISTER_KERNEL_BUILDER(Name("ResourceFusedAdam").Device(tensorflow::DEVICE_CPU), FusedAdamOp);
REGISTER_KERNEL_BUILDER(Name("ResourceFusedSgd").Device(tensorflow::DEVICE_CPU), FusedSgdOp);

}  // namespace
}  // namespace metal_ops
