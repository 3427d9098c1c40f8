// ResourceApply... and Apply...: TensorFlow's fused optimizer steps, in one dispatch each, on
// resource variables and on those of TensorFlow 1's graphs. An op is a line and a formula in optimizer.metal.

#include <string>
#include <vector>

#include "device/kernels/strided.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {
namespace {

// What the inputs are, by their letter: a variable and its slots, one number; 'g' is a gradient.
constexpr char kVariable = 'v', kScalar = 's';

// All inputs of an op in their order, as "vsg" says; the shader has arguments of these names.
template <typename Op>
class OptimizerOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit OptimizerOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_locking", &use_locking_));
    bool flag = false;
    if (Op::kFlag[0] != 0) OP_REQUIRES_OK(ctx, ctx->GetAttr(Op::kFlag, &flag));
    variant_ = flag == Op::kFlagOf ? Op::kVariant : "";
    for (int i = 0; Op::kKinds[i] != 0; ++i) {
      if (Op::kKinds[i] == kVariable) variables_.push_back(i);
    }
  }

  void Compute(KernelContext* ctx) {
    VariableLock lock(ctx, use_locking_, variables_);
    std::vector<Tensor> inputs(std::char_traits<char>::length(Op::kKinds));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      if (Op::kKinds[i] == kVariable) {
        OP_REQUIRES_OK(ctx, lock.Get(input, &inputs[i]));
      } else {
        OP_REQUIRES_OK(ctx, ctx->Input(input, &inputs[i]));
      }
    }
    // All before anything is written.
    std::vector<Argument> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      OP_REQUIRES_OK(ctx, Check(static_cast<int>(i), inputs[i], inputs[0]));
      arguments.push_back({Op::kNames[i], inputs[i]});
    }
    OP_REQUIRES_OK(ctx, CheckGrid(kOp, "elements", inputs[0].num_elements()));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({Op::kShader, variant_, inputs[0].dtype()},
                                           Grid(inputs[0].num_elements()), arguments);
                   }));
    if (Op::kRef) ForwardRef(ctx, 0, 0);
  }

 private:
  static Status Check(int i, const Tensor& tensor, const Tensor& var) {
    const char* const name = Op::kNames[i];
    if (Op::kKinds[i] == kScalar) {
      if (tensor.num_elements() == 1) return Status();
      return InvalidArgument(kOp, ": ", name, " has shape ", ToString(tensor.shape()),
                             ", expected a scalar");
    }
    if (tensor.dtype() != var.dtype()) {
      return InvalidArgument(kOp, ": ", name, " has dtype ", ToString(tensor.dtype()),
                             ", expected ", ToString(var.dtype()), ", that of var");
    }
    if (tensor.shape() == var.shape()) return Status();
    return InvalidArgument(kOp, ": ", name, " has shape ", ToString(tensor.shape()), ", expected ",
                           ToString(var.shape()), ", that of var");
  }

  bool use_locking_ = false;
  const char* variant_ = "";
  std::vector<int> variables_;
};

// `variant` is the shader's name where the attribute `flag` is `flag_of`.
#define OPTIMIZER(op, ref, shader, flag, flag_of, variant, kinds, ...) \
  struct op {                                                          \
    static constexpr char kOp[] = #op;                                 \
    static constexpr bool kRef = ref;                                  \
    static constexpr char kShader[] = shader;                          \
    static constexpr char kFlag[] = flag;                              \
    static constexpr bool kFlagOf = flag_of;                           \
    static constexpr char kVariant[] = variant;                        \
    static constexpr char kKinds[] = kinds;                            \
    static constexpr const char* kNames[] = {__VA_ARGS__};             \
  }
#define FLOATS .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16})

#define GRADIENT_DESCENT(op, ref) \
  OPTIMIZER(op, ref, "gradient_descent", "", true, "", "vsg", "var", "alpha", "delta")
GRADIENT_DESCENT(ResourceApplyGradientDescent, false);
GRADIENT_DESCENT(ApplyGradientDescent, true);
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyGradientDescent>, FLOATS.HostMemory("var"));
REGISTER_METAL_KERNEL(OptimizerOp<ApplyGradientDescent>, FLOATS);

#define ADAM(op, ref)                                                                         \
  OPTIMIZER(op, ref, "adam", "use_nesterov", true, "nesterov", "vvvssssssg", "var", "m", "v", \
            "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad")
ADAM(ResourceApplyAdam, false);
ADAM(ApplyAdam, true);
#define ADAM_HANDLES .HostMemory("var").HostMemory("m").HostMemory("v")
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyAdam>, FLOATS ADAM_HANDLES);
REGISTER_METAL_KERNEL(OptimizerOp<ApplyAdam>, FLOATS);

OPTIMIZER(ResourceApplyAdamWithAmsgrad, false, "adam_with_amsgrad", "", true, "", "vvvvssssssg",
          "var", "m", "v", "vhat", "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon",
          "grad");
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyAdamWithAmsgrad>,
                      FLOATS ADAM_HANDLES.HostMemory("vhat"));

#define MOMENTUM(op, ref, shader)                                                             \
  OPTIMIZER(op, ref, shader, "use_nesterov", true, "nesterov", "vvsgs", "var", "accum", "lr", \
            "grad", "momentum")
MOMENTUM(ResourceApplyMomentum, false, "momentum");
MOMENTUM(ResourceApplyKerasMomentum, false, "keras_momentum");
MOMENTUM(ApplyMomentum, true, "momentum");
#define ACCUM_HANDLES .HostMemory("var").HostMemory("accum")
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyMomentum>, FLOATS ACCUM_HANDLES);
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyKerasMomentum>, FLOATS ACCUM_HANDLES);
REGISTER_METAL_KERNEL(OptimizerOp<ApplyMomentum>, FLOATS);

#define ADAGRAD(op, ref)                                                                      \
  OPTIMIZER(op, ref, "adagrad", "update_slots", false, "fixed", "vvsg", "var", "accum", "lr", \
            "grad")
#define ADAGRAD_V2(op, ref)                                                                       \
  OPTIMIZER(op, ref, "adagrad_v2", "update_slots", false, "fixed", "vvssg", "var", "accum", "lr", \
            "epsilon", "grad")
ADAGRAD(ResourceApplyAdagrad, false);
ADAGRAD(ApplyAdagrad, true);
ADAGRAD_V2(ResourceApplyAdagradV2, false);
ADAGRAD_V2(ApplyAdagradV2, true);
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyAdagrad>, FLOATS ACCUM_HANDLES);
REGISTER_METAL_KERNEL(OptimizerOp<ApplyAdagrad>, FLOATS);
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyAdagradV2>, FLOATS ACCUM_HANDLES);
REGISTER_METAL_KERNEL(OptimizerOp<ApplyAdagradV2>, FLOATS);

#define ADADELTA(op, ref)                                                                       \
  OPTIMIZER(op, ref, "adadelta", "", true, "", "vvvsssg", "var", "accum", "accum_update", "lr", \
            "rho", "epsilon", "grad")
ADADELTA(ResourceApplyAdadelta, false);
ADADELTA(ApplyAdadelta, true);
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyAdadelta>,
                      FLOATS ACCUM_HANDLES.HostMemory("accum_update"));
REGISTER_METAL_KERNEL(OptimizerOp<ApplyAdadelta>, FLOATS);

#define RMS_PROP(op, ref)                                                                   \
  OPTIMIZER(op, ref, "rms_prop", "", true, "", "vvvssssg", "var", "ms", "mom", "lr", "rho", \
            "momentum", "epsilon", "grad")
#define CENTERED_RMS_PROP(op, ref)                                                             \
  OPTIMIZER(op, ref, "centered_rms_prop", "", true, "", "vvvvssssg", "var", "mg", "ms", "mom", \
            "lr", "rho", "momentum", "epsilon", "grad")
RMS_PROP(ResourceApplyRMSProp, false);
RMS_PROP(ApplyRMSProp, true);
CENTERED_RMS_PROP(ResourceApplyCenteredRMSProp, false);
CENTERED_RMS_PROP(ApplyCenteredRMSProp, true);
#define RMS_HANDLES .HostMemory("var").HostMemory("ms").HostMemory("mom")
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyRMSProp>, FLOATS RMS_HANDLES);
REGISTER_METAL_KERNEL(OptimizerOp<ApplyRMSProp>, FLOATS);
REGISTER_METAL_KERNEL(OptimizerOp<ResourceApplyCenteredRMSProp>,
                      FLOATS RMS_HANDLES.HostMemory("mg"));
REGISTER_METAL_KERNEL(OptimizerOp<ApplyCenteredRMSProp>, FLOATS);

}  // namespace
}  // namespace metal_ops
