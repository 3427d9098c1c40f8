// ResourceApplyGradientDescent and ResourceApplyAdam: TensorFlow's fused optimizer steps, in one
// dispatch each.

#include <array>
#include <string>

#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {
namespace {

Status CheckScalar(const char* op, const char* argument, const Tensor& tensor) {
  if (tensor.num_elements() == 1) return Status();
  return InvalidArgument(op, ": ", argument, " has shape ", ToString(tensor.shape()),
                         ", expected a scalar");
}

Status CheckShape(const char* op, const char* argument, const Tensor& tensor, const Tensor& var) {
  if (tensor.shape() == var.shape()) return Status();
  return InvalidArgument(op, ": ", argument, " has shape ", ToString(tensor.shape()), ", expected ",
                         ToString(var.shape()), ", that of var");
}

class GradientDescentOp {
 public:
  static constexpr char kOp[] = "ResourceApplyGradientDescent";

  explicit GradientDescentOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_locking", &use_locking_));
  }

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, use_locking_, {0});
    Tensor var, rate, gradient;
    if (!lock.Get(0, &var)) return;
    OP_REQUIRES_OK(ctx, ctx->Input(1, &rate));
    OP_REQUIRES_OK(ctx, ctx->Input(2, &gradient));
    OP_REQUIRES_OK(ctx, CheckScalar(kOp, "alpha", rate));
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "delta", gradient, var));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"gradient_descent", var.dtype()},
                                           Grid(var.num_elements()),
                                           {{"var", var}, {"rate", rate}, {"gradient", gradient}});
                   }));
  }

 private:
  bool use_locking_ = false;
};

class AdamOp {
 public:
  static constexpr char kOp[] = "ResourceApplyAdam";

  explicit AdamOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_locking", &use_locking_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_nesterov", &use_nesterov_));
  }

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, use_locking_, {0, 1, 2});
    Tensor var, m, v;
    if (!lock.Get(0, &var) || !lock.Get(1, &m) || !lock.Get(2, &v)) return;
    constexpr const char* kScalars[] = {"beta1_power", "beta2_power", "lr",
                                        "beta1",       "beta2",       "epsilon"};
    std::array<Tensor, 6> scalars;
    for (int i = 0; i < 6; ++i) {
      OP_REQUIRES_OK(ctx, ctx->Input(3 + i, &scalars[i]));
      OP_REQUIRES_OK(ctx, CheckScalar(kOp, kScalars[i], scalars[i]));
    }
    Tensor gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(9, &gradient));
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "m", m, var));
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "v", v, var));
    OP_REQUIRES_OK(ctx, CheckShape(kOp, "grad", gradient, var));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({use_nesterov_ ? "adam_nesterov" : "adam", var.dtype()},
                                           Grid(var.num_elements()),
                                           {{"var", var},
                                            {"m", m},
                                            {"v", v},
                                            {"beta1_power", scalars[0]},
                                            {"beta2_power", scalars[1]},
                                            {"rate", scalars[2]},
                                            {"beta1", scalars[3]},
                                            {"beta2", scalars[4]},
                                            {"epsilon", scalars[5]},
                                            {"gradient", gradient}});
                   }));
  }

 private:
  bool use_locking_ = false;
  bool use_nesterov_ = false;
};

REGISTER_METAL_KERNEL(GradientDescentOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("var"));
REGISTER_METAL_KERNEL(AdamOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16})
                                  .HostMemory("var")
                                  .HostMemory("m")
                                  .HostMemory("v"));

}  // namespace
}  // namespace metal_ops
