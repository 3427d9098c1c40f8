// ResourceFusedAdam and ResourceFusedSgd on the Metal device: the variables are updated in place,
// in one pass over memory, when the stream gets there.

#include <numeric>
#include <string>
#include <vector>

#include "kernels/common/encoder.h"
#include "kernels/common/registrar.h"
#include "kernels/common/variable.h"
#include "kernels/fused_optimizer/fused_optimizer_checks.h"

namespace metal_ops {
namespace {

// Rows up to this are one thread's work.
constexpr int64_t kShortRow = 32;

// A short list of variables that are all there, of the gradient's shape, and locked.
using Variables = std::vector<Tensor>;

Status ToStatus(const ArgShapes& checks) {
  return checks.ok() ? Status() : InvalidArgument(checks.error());
}

class OptimizerBase {
 public:
  OptimizerBase(const char* op, KernelConstruction* ctx) : op_(op) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("skip_zero_rows", &skip_zero_rows_));
  }

 protected:
  // Input `i`, which is in host memory.
  template <typename Value>
  Status Scalar(KernelContext* ctx, int i, const char* name, Value* value) const {
    Tensor tensor;
    RETURN_IF_ERROR(ctx->Input(i, &tensor));
    ArgShapes checks(op_);
    CheckScalar(&checks, name, ArgShape(tensor.shape()));
    RETURN_IF_ERROR(ToStatus(checks));
    *value = *tensor.host<Value>();
    return Status();
  }

  // The first inputs, named `names`: the variable, then its float32 state. False if that failed and
  // is reported.
  bool GetVariables(KernelContext* ctx, VariableLock* lock, const std::vector<std::string>& names,
                    const Tensor& gradient, Variables* variables) const {
    ArgShapes checks(op_);
    for (size_t i = 0; i < names.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        bool same = false;
        const Status status = SameVariable(ctx, static_cast<int>(i), static_cast<int>(j), &same);
        if (!status.ok()) return Fail(ctx, status);
        CheckDistinct(&checks, names[i], !same);
      }
    }
    if (!checks.ok()) return Fail(ctx, ToStatus(checks));
    variables->resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      Tensor& var = (*variables)[i];
      if (!lock->Get(static_cast<int>(i), &var)) return false;
      // What a variable without a value shows here.
      if (var.shape() == Shape{0} && gradient.num_elements() > 0) {
        return Fail(ctx, Status(TF_FAILED_PRECONDITION, NoValue(op_, names[i])));
      }
      const TF_DataType expected = i == 0 ? gradient.dtype() : TF_FLOAT;
      CheckVariable(&checks, {names[i], expected, var.dtype(), ArgShape(var.shape())},
                    ArgShape(gradient.shape()));
      if (!checks.ok()) return Fail(ctx, ToStatus(checks));
    }
    return true;
  }

  // `rule` names the shader's.
  Status Update(KernelContext* ctx, const std::string& rule, FusedUpdateParams params,
                const Variables& variables, const Tensor& gradient) const {
    const int64_t n = gradient.num_elements();
    if (n == 0) return Status();
    const int64_t n_rows = gradient.rank() == 0 ? 1 : gradient.dim(0);
    const int64_t row = n / n_rows;
    params.n_elements = static_cast<uint64_t>(n);
    params.row = static_cast<uint64_t>(row);

    const TF_DataType type = gradient.dtype();
    const auto state = [&](size_t i) {
      return i < variables.size() ? Value(variables[i]) : Value(Nothing());
    };
    std::vector<Argument> arguments = {{"x", variables[0]}, {"gradient", gradient},
                                       {"params", params},  {"m", state(1)},
                                       {"v", state(2)},     {"hat", state(3)}};
    const bool flags = skip_zero_rows_ && row > kShortRow;
    Tensor used;
    if (flags) RETURN_IF_ERROR(ctx->AllocateTemp(TF_UINT8, {n_rows}, &used));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (!flags) {
        const bool rows = skip_zero_rows_;
        return encoder.Launch({"fused", rule, rows ? "short_rows" : "", type},
                              Grid::Flat(rows ? n_rows : n), arguments);
      }
      RETURN_IF_ERROR(encoder.Launch({"fused_used_rows", type}, Grid::Flat(n_rows),
                                     {{"gradient", gradient}, {"params", params}, {"used", used}}));
      arguments.push_back({"used", used});
      return encoder.Launch({"fused", rule, "long_rows", type}, Grid(row, n_rows), arguments);
    });
  }

  static bool Fail(KernelContext* ctx, const Status& status) {
    ctx->Fail(status);
    return false;
  }

  static std::vector<int> FirstInputs(size_t n) {
    std::vector<int> inputs(n);
    std::iota(inputs.begin(), inputs.end(), 0);
    return inputs;
  }

 private:
  const char* op_;
  bool skip_zero_rows_ = false;
};

class FusedAdamOp : public OptimizerBase {
 public:
  static constexpr char kOp[] = "ResourceFusedAdam";

  explicit FusedAdamOp(KernelConstruction* ctx) : OptimizerBase(kOp, ctx) {
    int32_t n_hats = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("n_hats", &n_hats));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("float32_powers", &float32_powers_));
    ArgShapes checks(kOp);
    CheckAtMostOne(&checks, "hats", n_hats);
    OP_REQUIRES_OK(ctx, ToStatus(checks));
    names_ = {"var", "m", "v"};
    if (n_hats == 1) names_.push_back("hats[0]");
  }

  void Compute(KernelContext* ctx) {
    const int n = static_cast<int>(names_.size());
    AdamHyperparameters h = {};
    h.float32_powers = float32_powers_;
    OP_REQUIRES_OK(ctx, Scalar(ctx, n, "step", &h.step));
    OP_REQUIRES_OK(ctx, Scalar(ctx, n + 1, "lr", &h.lr));
    OP_REQUIRES_OK(ctx, Scalar(ctx, n + 2, "beta1", &h.beta1));
    OP_REQUIRES_OK(ctx, Scalar(ctx, n + 3, "beta2", &h.beta2));
    OP_REQUIRES_OK(ctx, Scalar(ctx, n + 4, "epsilon", &h.epsilon));
    OP_REQUIRES_OK(ctx, Scalar(ctx, n + 5, "weight_decay", &h.weight_decay));
    Tensor gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(n + 6, &gradient));
    ArgShapes checks(kOp);
    CheckAdam(&checks, h);
    OP_REQUIRES_OK(ctx, ToStatus(checks));

    VariableLock lock(ctx, /*exclusive=*/true, FirstInputs(names_.size()));
    Variables variables;
    if (!GetVariables(ctx, &lock, names_, gradient, &variables)) return;
    FusedUpdateParams params = {};
    params.adam = ToParams<float>(h);
    OP_REQUIRES_OK(ctx, Update(ctx, n == 4 ? "amsgrad" : "adam", params, variables, gradient));
  }

 private:
  std::vector<std::string> names_;
  bool float32_powers_ = false;
};

class FusedSgdOp : public OptimizerBase {
 public:
  static constexpr char kOp[] = "ResourceFusedSgd";

  explicit FusedSgdOp(KernelConstruction* ctx) : OptimizerBase(kOp, ctx) {
    int32_t n_momenta = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("n_momenta", &n_momenta));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("nesterov", &nesterov_));
    ArgShapes checks(kOp);
    CheckAtMostOne(&checks, "momenta", n_momenta);
    OP_REQUIRES_OK(ctx, ToStatus(checks));
    names_ = {"var"};
    if (n_momenta == 1) names_.push_back("momenta[0]");
  }

  void Compute(KernelContext* ctx) {
    const int n = static_cast<int>(names_.size());
    double lr = 0, momentum = 0, weight_decay = 0;
    OP_REQUIRES_OK(ctx, Scalar(ctx, n, "lr", &lr));
    OP_REQUIRES_OK(ctx, Scalar(ctx, n + 1, "momentum", &momentum));
    OP_REQUIRES_OK(ctx, Scalar(ctx, n + 2, "weight_decay", &weight_decay));
    Tensor gradient;
    OP_REQUIRES_OK(ctx, ctx->Input(n + 3, &gradient));

    VariableLock lock(ctx, /*exclusive=*/true, FirstInputs(names_.size()));
    Variables variables;
    if (!GetVariables(ctx, &lock, names_, gradient, &variables)) return;
    FusedUpdateParams params = {};
    params.sgd = {static_cast<float>(lr), static_cast<float>(momentum),
                  static_cast<float>(lr * weight_decay)};
    const char* const rule = n == 1 ? "sgd" : nesterov_ ? "nesterov" : "momentum";
    OP_REQUIRES_OK(ctx, Update(ctx, rule, params, variables, gradient));
  }

 private:
  std::vector<std::string> names_;
  bool nesterov_ = false;
};

// float64 stays the CPU's: shaders have no double.
REGISTER_METAL_KERNEL(FusedAdamOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16})
                                       .HostMemory("var")
                                       .HostMemory("m")
                                       .HostMemory("v")
                                       .HostMemory("hats")
                                       .HostMemory("step")
                                       .HostMemory("lr")
                                       .HostMemory("beta1")
                                       .HostMemory("beta2")
                                       .HostMemory("epsilon")
                                       .HostMemory("weight_decay"));
REGISTER_METAL_KERNEL(FusedSgdOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16})
                                      .HostMemory("var")
                                      .HostMemory("momenta")
                                      .HostMemory("lr")
                                      .HostMemory("momentum")
                                      .HostMemory("weight_decay"));

}  // namespace
}  // namespace metal_ops
