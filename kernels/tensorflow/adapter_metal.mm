// TensorFlow's adapter: Metal kernels of declared ops become its kernels for "GPU".

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/elementwise.h"
#include "kernels/runtime/metal_call.h"
#include "kernels/tensorflow/public_words.h"
#include "kernels/tensorflow/registrar.h"
#include "kernels/tensorflow/variable.h"

namespace metal_ops {
namespace {

using Kernel = Status (*)(MetalCall&);

std::map<std::string, Kernel>& Kernels() {
  static auto* const kernels = new std::map<std::string, Kernel>();
  return *kernels;
}

Status ReadAttrs(const OpDeclaration& op, KernelConstruction* ctx, std::vector<AttrValue>* values) {
  for (const OpAttr& attr : op.attrs) {
    AttrValue& value = values->emplace_back();
    const char* const name = attr.name.c_str();
    switch (attr.kind) {
      case AttrKind::kBool:
        RETURN_IF_ERROR(ctx->GetAttr(name, &value.emplace<bool>()));
        break;
      case AttrKind::kInt:
        RETURN_IF_ERROR(ctx->GetAttr(name, &value.emplace<int64_t>()));
        break;
      case AttrKind::kFloat:
        RETURN_IF_ERROR(ctx->GetAttr(name, &value.emplace<float>()));
        break;
      case AttrKind::kText:
        RETURN_IF_ERROR(ctx->GetAttr(name, &value.emplace<std::string>()));
        break;
      case AttrKind::kInts:
        RETURN_IF_ERROR(ctx->GetAttr(name, &value.emplace<std::vector<int64_t>>()));
        break;
      case AttrKind::kTexts:
        RETURN_IF_ERROR(ctx->GetAttr(name, &value.emplace<std::vector<std::string>>()));
        break;
      case AttrKind::kType: {
        TF_DataType type;
        RETURN_IF_ERROR(ctx->GetAttr(name, &type));
        value = static_cast<DType>(type);
        break;
      }
      case AttrKind::kTypes: {
        std::vector<TF_DataType> types;
        RETURN_IF_ERROR(ctx->GetAttr(name, &types));
        std::vector<DType>& list = value.emplace<std::vector<DType>>();
        for (const TF_DataType type : types) list.push_back(static_cast<DType>(type));
        break;
      }
    }
  }
  return Status();
}

bool IsInteger(DType type) {
  return type != DType::kFloat && type != DType::kHalf && type != DType::kBfloat16;
}

class TensorFlowCall : public MetalCall {
 public:
  TensorFlowCall(const OpDeclaration& op, const std::vector<AttrValue>& attrs,
                 const std::string& note, std::vector<Tensor> tensors, std::vector<ArgShape> shapes,
                 KernelContext* ctx)
      : MetalCall(op, attrs, std::move(shapes)), note_(note), ctx_(ctx) {
    inputs = std::move(tensors);
    outputs.resize(op.outputs.size());
  }

  Status Allocate(int output, const Shape& shape) override {
    return ctx_->AllocateOutput(output, shape, &outputs[output]);
  }
  const void* HostValue(int i) const override {
    const Memory memory = InputArg(i).memory;
    const bool on_host =
        memory == Memory::kHost || (memory == Memory::kHostIfInteger && IsInteger(InputType(i)));
    return on_host ? inputs[i].host<char>() : nullptr;
  }
  Status AllocateTemp(DType type, const Shape& shape, Tensor* tensor) override {
    return ctx_->AllocateTemp(type, shape, tensor);
  }
  id<TF_MetalStream> stream() const override { return stream_; }

  // Locks the variables among the inputs until the call ends; the inputs are their tensors then.
  // False: it failed, and that is reported.
  bool LockVariables() {
    std::vector<int> numbers;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int number = static_cast<int>(i);
      if (InputArg(number).variable.empty()) continue;
      for (const int other : numbers) {
        bool same = false;
        const Status status = SameVariable(ctx_, number, other, &same);
        if (!status.ok()) return Fail(status);
        CheckDistinct(number, !same);
      }
      numbers.push_back(number);
    }
    if (!shapes.ok()) return Fail(Checked());
    lock_ = std::make_unique<VariableLock>(ctx_, /*exclusive=*/true, numbers);
    for (const int i : numbers) {
      const Status status = lock_->Get(i, &inputs[i]);
      if (status.code() == Code::kFailedPrecondition)
        return Fail(Status(status.code(), NoValue(i)));
      if (!status.ok()) return Fail(status);
      in_shapes[i] = ArgShape(inputs[i].shape());
      CheckVariable(i, inputs[i].dtype());
    }
    return shapes.ok() || Fail(Checked());
  }

  Status Run(Kernel kernel) {
    void* stream = nullptr;
    RETURN_IF_ERROR(ctx_->Stream(&stream));
    stream_ = static_cast<id<TF_MetalStream>>(stream);
    CheckAll();
    RETURN_IF_ERROR(Checked());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ArgShape& shape = out_shapes[i];
      if (!IsAllKnown(shape)) continue;  // the kernel will say
      const int output = static_cast<int>(i);
      RETURN_IF_ERROR(
          i == 0 && op.reused_input >= 0 && op.reused_on_metal
              ? ctx_->ForwardInputOrAllocateOutput(op.reused_input, output, shape.dims, &outputs[i])
              : ctx_->AllocateOutput(output, shape.dims, &outputs[i]));
    }
    RETURN_IF_ERROR(kernel(*this));
    return Checked();
  }

  // As the public function says it, where one made the node. False.
  bool Fail(const Status& status) {
    ctx_->Fail(Status(status.code(), InPublicWords(op.name, note_, status.message())));
    return false;
  }

 private:
  const std::string& note_;
  KernelContext* const ctx_;
  id<TF_MetalStream> stream_ = nil;
  std::unique_ptr<VariableLock> lock_;
};

// A formula of the elements on every device: see OpBuilder::Elementwise.
Status RunElementwise(MetalCall& call) {
  const std::vector<float> values = call.FormulaValues();
  std::vector<Argument> arguments = {{"a", call.in(0)}, {"out", call.out(0)}};
  if (call.inputs.size() > 1) arguments.push_back({"b", call.in(1)});
  return call.Encode([&](Encoder& encoder) {
    // The formula's struct: its bytes are the attributes.
    return LaunchElementwise(encoder, {call.op.elementwise.shader, call.out(0).dtype()},
                             call.out(0).num_elements(), arguments,
                             HostArray(values.data(), values.size()).Untyped());
  });
}

// One op's kernel, for the life of the process.
struct Entry {
  const OpDeclaration* op;
  Kernel kernel;
};

// One node's.
struct DeclaredKernel {
  Entry entry;
  std::vector<AttrValue> attrs;
  std::string note;  // public_words.h
  Status error;
  KernelNames names;
};

// TensorFlow does not tell the function that creates a kernel which op it is for, so each op has a
// function of its own: number N creates the kernels of entry N.
constexpr size_t kMaxOps = 256;
std::vector<Entry>& Entries() {
  static auto* const entries = new std::vector<Entry>();
  return *entries;
}

// A kernel that cannot be built says so when it is run: see KernelThunks.
void* Create(size_t number, TF_OpKernelConstruction* raw) {
  KernelConstruction ctx(raw);
  auto* const made = new (std::nothrow) DeclaredKernel();
  if (made == nullptr) return nullptr;
  made->entry = Entries()[number];
  const OpDeclaration& op = *made->entry.op;
  Guarded(op.name.c_str(), &ctx, [&] {
    if (!ctx.GetAttr(kPublicWords, &made->note).ok()) made->note.clear();  // most have none
    if (const Status status = ReadAttrs(op, &ctx, &made->attrs); !status.ok()) {
      return ctx.Fail(status);
    }
    OpCall call(op, made->attrs, {});
    if (call.CheckAttrs()) return;
    const Status status = ToStatus(call.shapes);
    ctx.Fail(Status(status.code(), InPublicWords(op.name, made->note, status.message())));
  });
  made->error = ctx.error();
  return made;
}

template <size_t kNumber>
void* CreateNumber(TF_OpKernelConstruction* raw) {
  return Create(kNumber, raw);
}

template <size_t... kNumber>
constexpr auto Creators(std::index_sequence<kNumber...>) {
  using Creator = void* (*)(TF_OpKernelConstruction*);
  return std::array<Creator, sizeof...(kNumber)>{CreateNumber<kNumber>...};
}

void Compute(void* raw_kernel, TF_OpKernelContext* raw) {
  KernelContext ctx(raw);
  auto* const kernel = static_cast<DeclaredKernel*>(raw_kernel);
  if (kernel == nullptr) return ctx.Fail(ResourceExhausted("out of host memory"));
  if (!kernel->error.ok()) return ctx.Fail(kernel->error);
  const OpDeclaration& op = *kernel->entry.op;
  const OpScope scope(ToRunningOp(op.name.c_str(), raw, &kernel->names));
  Guarded(op.name.c_str(), &ctx, [&] {
    std::vector<Tensor> inputs(ctx.num_inputs());
    std::vector<ArgShape> shapes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      OP_REQUIRES_OK(&ctx, ctx.Input(static_cast<int>(i), &inputs[i]));
      shapes.emplace_back(inputs[i].shape());
    }
    TensorFlowCall call(op, kernel->attrs, kernel->note, std::move(inputs), std::move(shapes),
                        &ctx);
    if (op.has_variables() && !call.LockVariables()) return;
    if (const Status status = call.Run(kernel->entry.kernel); !status.ok()) call.Fail(status);
  });
}

void Delete(void* kernel) { delete static_cast<DeclaredKernel*>(kernel); }

// Once, or once per type where some types are not the device's, or where integers are looked at by
// the host.
void RegisterWithTypes(const char* name, const KernelFunctions& functions,
                       const OpDeclaration& op) {
  KernelOptions always;
  std::string host_if_integer, integer_attr;
  for (const std::vector<OpArg>* args : {&op.inputs, &op.outputs}) {
    for (const OpArg& arg : *args) {
      if (arg.memory == Memory::kHost) always.host_memory.push_back(arg.name);
      if (arg.memory == Memory::kHostIfInteger) {
        host_if_integer = arg.name;
        integer_attr = arg.type;
      }
    }
  }
  std::vector<KernelOptions> kernels = {always};
  for (const OpAttr& attr : op.attrs) {
    const auto has = [&](DType type) {
      return std::count(attr.types.begin(), attr.types.end(), type) > 0;
    };
    const bool lacks = has(DType::kDouble) || (has(DType::kBfloat16) && !kShadersHaveBfloat);
    if (!lacks && attr.name != integer_attr) continue;
    std::vector<KernelOptions> of_each;
    for (const KernelOptions& kernel : kernels) {
      for (const DType type : attr.types) {
        if (type == DType::kDouble) continue;  // shaders have none
        KernelOptions& options = of_each.emplace_back(kernel);
        options.where.emplace_back(attr.name, static_cast<TF_DataType>(type));
        if (attr.name == integer_attr && IsInteger(type)) {
          options.host_memory.push_back(host_if_integer);
        }
      }
    }
    kernels = std::move(of_each);
  }
  for (const KernelOptions& options : kernels) KernelRegistrar(name, functions, options);
}

// Called with one of the two known and perhaps the other: files are initialised in any order.
void RegisterIfComplete(const std::string& name) {
  static constexpr auto kCreators = Creators(std::make_index_sequence<kMaxOps>());
  const OpDeclaration* op = FindOp(name);
  const auto kernel = Kernels().find(name);
  if (op == nullptr || kernel == Kernels().end()) return;
  const size_t number = Entries().size();
  if (number == kMaxOps) return ReportRegistrationError(name + ": more than 256 ops");
  Entries().push_back({op, kernel->second});
  RegisterWithTypes(name.c_str(), {kCreators[number], Compute, Delete}, *op);
}

}  // namespace

DeclaredOp::DeclaredOp(const OpBuilder& builder) {
  const OpDeclaration& op = internal::Remember(builder.op_);
  if (op.elementwise.shader != nullptr) Kernels()[op.name] = RunElementwise;
  RegisterIfComplete(op.name);
}

MetalKernel::MetalKernel(const char* op, Status (*kernel)(MetalCall&)) {
  Kernels()[op] = kernel;
  RegisterIfComplete(op);
}

}  // namespace metal_ops
