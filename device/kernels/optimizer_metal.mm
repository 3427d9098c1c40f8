// ResourceApply... and Apply..., ResourceSparseApply... and SparseApply...: TensorFlow's fused optimizer steps, in
// one dispatch each, on resource variables and on those of TensorFlow 1's graphs, of all elements or of the rows that
// indices name. An op is a line and a formula in optimizer.metal.

#include <string>
#include <string_view>
#include <vector>

#include "device/kernels/layout.h"
#include "device/kernels/scatter.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {
namespace {

// The inputs by their letter: a variable and its slots, one number, a count of steps, the gradient, and the
// indices of its rows.
constexpr char kVariable = 'v', kScalar = 's', kCount = 'n', kGradient = 'g', kIndices = 'i';

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
    std::vector<Tensor> inputs(std::string_view(Op::kKinds).size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      if (Op::kKinds[i] == kVariable) {
        OP_REQUIRES_OK(ctx, lock.Get(input, &inputs[i]));
      } else {
        OP_REQUIRES_OK(ctx, ctx->Input(input, &inputs[i]));
      }
    }
    OP_REQUIRES_OK(ctx, Run(ctx, inputs));
    if (!kResource) ForwardRef(ctx, 0, 0);
  }

  // The kernels of a sparse step for indices of that dtype.
  static KernelOptions Options(TF_DataType indices = TF_INT64) {
    KernelOptions options;
    options.type_attr = "T";
    options.types = {TF_FLOAT, TF_HALF, TF_BFLOAT16};
    if (kLinear) options.types.push_back(TF_COMPLEX64);
    for (int i = 0; Op::kKinds[i] != 0; ++i) {
      if (kResource && Op::kKinds[i] == kVariable) options.host_memory.push_back(Op::kNames[i]);
    }
    if (kSparse) options.where.emplace_back("Tindices", indices);
    return options;
  }

 private:
  static constexpr bool kResource = std::string_view(Op::kOp).substr(0, 8) == "Resource";
  static constexpr size_t kIndex = std::string_view(Op::kKinds).find(kIndices);
  static constexpr bool kSparse = kIndex != std::string_view::npos;
  // Optimizers that have steps of complex weights. Others square gradients, where a complex one's size would be
  // meant.
  static constexpr bool kLinear =
      std::string_view(Op::kShader) == "gradient_descent" ||
      std::string_view(Op::kShader).find("momentum") != std::string_view::npos;
  // Optimizers whose threads have several elements where these run after each other.
  static constexpr bool kParts = !kSparse && std::string_view(Op::kShader).substr(0, 4) == "ftrl";
  static constexpr uint32_t kPart = 1024;

  Status Run(KernelContext* ctx, const std::vector<Tensor>& inputs) const {
    const Tensor& var = inputs[0];
    ScatterParams p = {};
    Shape rows = var.shape();  // the gradient's
    if (kSparse) {
      const Tensor& indices = inputs[kIndex];
      if (indices.rank() != 1) {
        return InvalidArgument(kOp, ": indices has shape ", ToString(indices.shape()),
                               ", expected one dimension");
      }
      RETURN_IF_ERROR(PlanRows(kOp, var.shape(), indices, &p, &rows));
    }
    // All before anything is written.
    std::vector<Argument> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      RETURN_IF_ERROR(Check(static_cast<int>(i), inputs[i], var, rows));
      arguments.push_back({Op::kNames[i], inputs[i]});
    }
    Grid grid(var.num_elements());
    const auto n = static_cast<uint64_t>(var.num_elements());
    const uint32_t part = ThreadgroupsRunAtOnce() ? 1 : kPart;
    Shader shader(Op::kShader, variant_, var.dtype());
    if (kSparse) {
      if (p.updates == 0 || var.num_elements() == 0) return Status();
      RETURN_IF_ERROR(ScatterGrid(kOp, &p, &grid));
      arguments.push_back({"p", p});
      shader = Shader(std::string("sparse_") + Op::kShader, variant_, var.dtype(),
                      inputs[kSparse ? kIndex : 0].dtype());
    } else {
      RETURN_IF_ERROR(CheckGrid(kOp, "elements", var.num_elements()));
      if (kParts) {
        grid = Grid((var.num_elements() + part - 1) / part);
        arguments.push_back({"n", n});
        arguments.push_back({"part", part});
      }
    }
    return Encode(ctx, [&](Encoder& encoder) { return encoder.Launch(shader, grid, arguments); });
  }

  static Status Check(int i, const Tensor& tensor, const Tensor& var, const Shape& rows) {
    const char* const name = Op::kNames[i];
    const char kind = Op::kKinds[i];
    if (kind == kIndices) return Status();
    if (kind == kScalar || kind == kCount) {
      if (tensor.num_elements() == 1) return Status();
      return InvalidArgument(kOp, ": ", name, " has shape ", ToString(tensor.shape()),
                             ", expected a scalar");
    }
    if (tensor.dtype() != var.dtype()) {
      return InvalidArgument(kOp, ": ", name, " has dtype ", ToString(tensor.dtype()),
                             ", expected ", ToString(var.dtype()), ", that of var");
    }
    if (tensor.shape() == (kind == kGradient ? rows : var.shape())) return Status();
    const bool of_rows = kSparse && kind == kGradient;
    return InvalidArgument(kOp, ": ", name, " has shape ", ToString(tensor.shape()), ", expected ",
                           ToString(of_rows ? rows : var.shape()),
                           of_rows ? ", a row of var for each of indices" : ", that of var");
  }

  bool use_locking_ = false;
  const char* variant_ = "";
  std::vector<int> variables_;
};

// `variant` is the shader's name where the attribute `flag` is `flag_of`.
#define OPTIMIZER(op, shader, flag, flag_of, variant, kinds, ...) \
  struct op {                                                     \
    static constexpr char kOp[] = #op;                            \
    static constexpr char kShader[] = shader;                     \
    static constexpr char kFlag[] = flag;                         \
    static constexpr bool kFlagOf = flag_of;                      \
    static constexpr char kVariant[] = variant;                   \
    static constexpr char kKinds[] = kinds;                       \
    static constexpr const char* kNames[] = {__VA_ARGS__};        \
  }
// On a resource alone; on either kind of variable; the same by indices.
#define RESOURCE(op, ...)               \
  OPTIMIZER(Resource##op, __VA_ARGS__); \
  REGISTER_METAL_KERNEL(OptimizerOp<Resource##op>, = OptimizerOp<Resource##op>::Options())
#define DENSE(op, ...)        \
  RESOURCE(op, __VA_ARGS__);  \
  OPTIMIZER(op, __VA_ARGS__); \
  REGISTER_METAL_KERNEL(OptimizerOp<op>, = OptimizerOp<op>::Options())
#define INDEXED(op)                                                             \
  REGISTER_METAL_KERNEL(OptimizerOp<op>, = OptimizerOp<op>::Options(TF_INT32)); \
  REGISTER_METAL_KERNEL(OptimizerOp<op>, = OptimizerOp<op>::Options(TF_INT64))
#define RESOURCE_SPARSE(op, ...)        \
  OPTIMIZER(Resource##op, __VA_ARGS__); \
  INDEXED(Resource##op)
#define SPARSE(op, ...)             \
  RESOURCE_SPARSE(op, __VA_ARGS__); \
  OPTIMIZER(op, __VA_ARGS__);       \
  INDEXED(op)

#define NO_FLAG "", true, ""
#define NESTEROV "use_nesterov", true, "nesterov"
#define SLOTS "update_slots", false, "fixed"
#define SCALED "multiply_linear_by_lr", true, "scaled"

DENSE(ApplyGradientDescent, "gradient_descent", NO_FLAG, "vsg", "var", "alpha", "delta");
DENSE(ApplyAdam, "adam", NESTEROV, "vvvssssssg", "var", "m", "v", "beta1_power", "beta2_power",
      "lr", "beta1", "beta2", "epsilon", "grad");
RESOURCE(ApplyAdamWithAmsgrad, "adam_with_amsgrad", NO_FLAG, "vvvvssssssg", "var", "m", "v", "vhat",
         "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad");
DENSE(ApplyAdaMax, "ada_max", NO_FLAG, "vvvsssssg", "var", "m", "v", "beta1_power", "lr", "beta1",
      "beta2", "epsilon", "grad");
DENSE(ApplyAddSign, "add_sign", NO_FLAG, "vvssssg", "var", "m", "lr", "alpha", "sign_decay", "beta",
      "grad");
DENSE(ApplyPowerSign, "power_sign", NO_FLAG, "vvssssg", "var", "m", "lr", "logbase", "sign_decay",
      "beta", "grad");

DENSE(ApplyMomentum, "momentum", NESTEROV, "vvsgs", "var", "accum", "lr", "grad", "momentum");
SPARSE(SparseApplyMomentum, "momentum", NESTEROV, "vvsgis", "var", "accum", "lr", "grad", "indices",
       "momentum");
RESOURCE(ApplyKerasMomentum, "keras_momentum", NESTEROV, "vvsgs", "var", "accum", "lr", "grad",
         "momentum");
RESOURCE_SPARSE(SparseApplyKerasMomentum, "keras_momentum", NESTEROV, "vvsgis", "var", "accum",
                "lr", "grad", "indices", "momentum");

DENSE(ApplyAdagrad, "adagrad", SLOTS, "vvsg", "var", "accum", "lr", "grad");
SPARSE(SparseApplyAdagrad, "adagrad", SLOTS, "vvsgi", "var", "accum", "lr", "grad", "indices");
DENSE(ApplyAdagradV2, "adagrad_v2", SLOTS, "vvssg", "var", "accum", "lr", "epsilon", "grad");
SPARSE(SparseApplyAdagradV2, "adagrad_v2", SLOTS, "vvssgi", "var", "accum", "lr", "epsilon", "grad",
       "indices");
DENSE(ApplyAdagradDA, "adagrad_da", NO_FLAG, "vvvgsssn", "var", "gradient_accumulator",
      "gradient_squared_accumulator", "grad", "lr", "l1", "l2", "global_step");
SPARSE(SparseApplyAdagradDA, "adagrad_da", NO_FLAG, "vvvgisssn", "var", "gradient_accumulator",
       "gradient_squared_accumulator", "grad", "indices", "lr", "l1", "l2", "global_step");

DENSE(ApplyAdadelta, "adadelta", NO_FLAG, "vvvsssg", "var", "accum", "accum_update", "lr", "rho",
      "epsilon", "grad");
SPARSE(SparseApplyAdadelta, "adadelta", NO_FLAG, "vvvsssgi", "var", "accum", "accum_update", "lr",
       "rho", "epsilon", "grad", "indices");
DENSE(ApplyRMSProp, "rms_prop", NO_FLAG, "vvvssssg", "var", "ms", "mom", "lr", "rho", "momentum",
      "epsilon", "grad");
SPARSE(SparseApplyRMSProp, "rms_prop", NO_FLAG, "vvvssssgi", "var", "ms", "mom", "lr", "rho",
       "momentum", "epsilon", "grad", "indices");
DENSE(ApplyCenteredRMSProp, "centered_rms_prop", NO_FLAG, "vvvvssssg", "var", "mg", "ms", "mom",
      "lr", "rho", "momentum", "epsilon", "grad");
SPARSE(SparseApplyCenteredRMSProp, "centered_rms_prop", NO_FLAG, "vvvvssssgi", "var", "mg", "ms",
       "mom", "lr", "rho", "momentum", "epsilon", "grad", "indices");

DENSE(ApplyProximalGradientDescent, "proximal_gradient_descent", NO_FLAG, "vsssg", "var", "alpha",
      "l1", "l2", "delta");
SPARSE(SparseApplyProximalGradientDescent, "proximal_gradient_descent", NO_FLAG, "vsssgi", "var",
       "alpha", "l1", "l2", "grad", "indices");
DENSE(ApplyProximalAdagrad, "proximal_adagrad", NO_FLAG, "vvsssg", "var", "accum", "lr", "l1", "l2",
      "grad");
SPARSE(SparseApplyProximalAdagrad, "proximal_adagrad", NO_FLAG, "vvsssgi", "var", "accum", "lr",
       "l1", "l2", "grad", "indices");
DENSE(ApplyFtrl, "ftrl", SCALED, "vvvgssss", "var", "accum", "linear", "grad", "lr", "l1", "l2",
      "lr_power");
SPARSE(SparseApplyFtrl, "ftrl", SCALED, "vvvgissss", "var", "accum", "linear", "grad", "indices",
       "lr", "l1", "l2", "lr_power");
DENSE(ApplyFtrlV2, "ftrl_v2", SCALED, "vvvgsssss", "var", "accum", "linear", "grad", "lr", "l1",
      "l2", "l2_shrinkage", "lr_power");
SPARSE(SparseApplyFtrlV2, "ftrl_v2", SCALED, "vvvgisssss", "var", "accum", "linear", "grad",
       "indices", "lr", "l1", "l2", "l2_shrinkage", "lr_power");

}  // namespace
}  // namespace metal_ops
