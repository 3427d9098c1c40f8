// TensorFlow's adapter: ops declared in kernels/ become its ops with their shape functions, and
// their CPU kernels its kernels.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/runtime/op.h"
#include "kernels/tensorflow/parallel.h"
#include "kernels/tensorflow/public_words.h"
#include "kernels/tensorflow/tf_arg_shapes.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace metal_ops {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::Var;
using tensorflow::shape_inference::InferenceContext;

// From a node's, through whatever has GetAttr: kernels' constructions and shape functions.
template <typename Context>
absl::Status ReadAttrs(const OpDeclaration& op, Context* context, std::vector<AttrValue>* values) {
  const auto get = [&](const std::string& name, auto* value) {
    return context->GetAttr(name, value);
  };
  for (const OpAttr& attr : op.attrs) {
    values->emplace_back();
    AttrValue& value = values->back();
    switch (attr.kind) {
      case AttrKind::kBool:
        TF_RETURN_IF_ERROR(get(attr.name, &value.emplace<bool>()));
        break;
      case AttrKind::kInt:
        TF_RETURN_IF_ERROR(get(attr.name, &value.emplace<int64_t>()));
        break;
      case AttrKind::kFloat:
        TF_RETURN_IF_ERROR(get(attr.name, &value.emplace<float>()));
        break;
      case AttrKind::kText:
        TF_RETURN_IF_ERROR(get(attr.name, &value.emplace<std::string>()));
        break;
      case AttrKind::kType: {
        DataType type;
        TF_RETURN_IF_ERROR(get(attr.name, &type));
        value = static_cast<DType>(type);
        break;
      }
      case AttrKind::kInts: {
        TF_RETURN_IF_ERROR(get(attr.name, &value.emplace<std::vector<int64_t>>()));
        break;
      }
      case AttrKind::kTexts:
        TF_RETURN_IF_ERROR(get(attr.name, &value.emplace<std::vector<std::string>>()));
        break;
      case AttrKind::kTypes: {
        std::vector<DataType> types;
        TF_RETURN_IF_ERROR(get(attr.name, &types));
        std::vector<DType>& list = value.emplace<std::vector<DType>>();
        for (const DataType type : types) list.push_back(static_cast<DType>(type));
        break;
      }
    }
  }
  return absl::OkStatus();
}

// One node of a graph that is being built.
class InferredCall : public OpCall {
 public:
  InferredCall(const OpDeclaration& op, const std::vector<AttrValue>& attrs,
               InferenceContext* context)
      : OpCall(op, attrs, InputShapes(context)), context_(context) {
    for (int i = 0; op.has_variables() && i < context->num_inputs(); ++i) {
      if (InputArg(i).variable.empty()) continue;
      const auto* handle = context->input_handle_shapes_and_types(i);
      const bool known = handle != nullptr && !handle->empty();
      in_shapes[i] = known ? ToArgShape(context, (*handle)[0].shape) : ArgShape();
    }
  }

  const void* HostValue(int input) const override {
    const Tensor* tensor = context_->input_tensor(input);
    return tensor == nullptr ? nullptr : tensor->data();
  }

 private:
  InferenceContext* const context_;
};

absl::Status InferShapes(const OpDeclaration& op, InferenceContext* c) {
  std::vector<AttrValue> attrs;
  TF_RETURN_IF_ERROR(ReadAttrs(op, c, &attrs));
  InferredCall call(op, attrs, c);
  if (!call.CheckAll()) return ToStatus(call.shapes);
  for (int i = 0; i < c->num_outputs(); ++i) {
    const ArgShape& shape = call.out_shapes[i];
    // The same dimensions, known or not, where an output is shaped like an input.
    const std::string& declared = op.outputs[i].shape;
    const int like = declared.rfind("like ", 0) == 0 ? call.Index(declared.c_str() + 5) : -1;
    if (like >= 0) {
      c->set_output(i, c->input(like));
    } else {
      c->set_output(i, shape.known_rank ? ToShape(c, shape.dims) : c->UnknownShape());
    }
  }
  return absl::OkStatus();
}

// The results of a call's checks. Checks compare names and make sentences: of one token of a
// language model they were a tenth.
struct Checked {
  ArgShapes shapes;
  std::vector<ArgShape> in_shapes, out_shapes;
};

bool SameSizes(const std::vector<ArgShape>& a, const std::vector<ArgShape>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ArgShape& x, const ArgShape& y) { return x.dims == y.dims; });
}

class TensorFlowCall : public CpuCall {
 public:
  TensorFlowCall(const OpDeclaration& op, const std::vector<AttrValue>& attrs,
                 OpKernelContext* context)
      : CpuCall(op, attrs, InputShapes(context)), context_(context) {
    outputs.resize(context->num_outputs());
    for (int i = 0; i < context->num_inputs(); ++i) {
      const Tensor& tensor = context->input(i);
      // Through data() and never flat<T>(), which expects alignment.
      inputs.push_back({tensor.data(), static_cast<DType>(tensor.dtype()), tensor.NumElements(),
                        static_cast<int64_t>(tensor.TotalBytes())});
    }
  }

  // Finds and locks the variables among the inputs, until the call ends. All have memory of their
  // own then: a reader of one keeps its values.
  absl::Status LockVariables() {
    std::vector<int> numbers;
    for (int i = 0; i < context_->num_inputs(); ++i) {
      if (InputArg(i).variable.empty()) continue;
      tensorflow::core::RefCountPtr<Var> var;
      if (!LookupResource(context_, HandleFromInput(context_, i), &var).ok()) {
        return absl::FailedPreconditionError(NoValue(i));
      }
      for (const auto& other : variables_) CheckDistinct(i, other.get() != var.get());
      numbers.push_back(i);
      variables_.push_back(std::move(var));
    }
    if (!shapes.ok()) return ToStatus(shapes);
    // In order of address, as every op does that locks several.
    std::vector<tensorflow::mutex*> mutexes;
    for (const auto& var : variables_) mutexes.push_back(var->mu());
    std::sort(mutexes.begin(), mutexes.end());
    for (tensorflow::mutex* mutex : mutexes) {
      locks_.push_back(std::make_unique<tensorflow::mutex_lock>(*mutex));
    }
    for (size_t i = 0; i < variables_.size(); ++i) {
      Tensor* const tensor = variables_[i]->tensor();
      if (!variables_[i]->is_initialized) {
        return absl::FailedPreconditionError(NoValue(numbers[i]));
      }
      CheckVariable(numbers[i], static_cast<DType>(tensor->dtype()));
      // In copy_on_read_mode, too, which assigned slices leave behind: reads copy then, and writers
      // with a shared lock are shut out by this one.
      if (!tensor->RefCountIsOne()) {
        Tensor own;
        TF_RETURN_IF_ERROR(context_->allocate_temp(tensor->dtype(), tensor->shape(), &own));
        // Not memcpy: an empty tensor has no address.
        std::copy_n(static_cast<const char*>(tensor->data()), tensor->TotalBytes(),
                    static_cast<char*>(own.data()));
        *tensor = own;
      }
      in_shapes[numbers[i]] = ToArgShape(tensor->shape());
      inputs[numbers[i]] = {tensor->data(), static_cast<DType>(tensor->dtype()),
                            tensor->NumElements(), static_cast<int64_t>(tensor->TotalBytes())};
    }
    return ToStatus(shapes);
  }

  const void* HostValue(int input) const override {
    looked_at_values_ = true;
    return CpuCall::HostValue(input);
  }

  // CheckAll, unless `last` had these shapes. It becomes the found shapes, if they follow from
  // shapes.
  bool CheckUnless(std::shared_ptr<const Checked>* last) {
    const std::shared_ptr<const Checked> before = std::atomic_load(last);
    if (before != nullptr && SameSizes(before->in_shapes, in_shapes)) {
      shapes = before->shapes;
      out_shapes = before->out_shapes;
      return true;
    }
    looked_at_values_ = false;
    if (!CheckAll()) return false;
    if (!looked_at_values_) {
      std::atomic_store(last,
                        std::shared_ptr<const Checked>(new Checked{shapes, in_shapes, out_shapes}));
    }
    return true;
  }

  bool Allocate(int output, const std::vector<int64_t>& dims, int reused) override {
    Tensor* tensor = nullptr;
    TensorShape shape;
    absl::Status status = TensorShape::BuildTensorShape(dims, &shape);
    if (status.ok() && reused < 0) status = context_->allocate_output(output, shape, &tensor);
    if (status.ok() && reused >= 0) {
      status = context_->forward_input_or_allocate_output({reused}, output, shape, &tensor);
    }
    if (!status.ok()) {
      context_->SetStatus(status);
      return false;
    }
    outputs[output] = {tensor->data(), static_cast<DType>(tensor->dtype()), tensor->NumElements(),
                       static_cast<int64_t>(tensor->TotalBytes())};
    return true;
  }

  void* Scratch(int64_t n_bytes) override {
    scratch_.emplace_back();
    const absl::Status status = context_->allocate_temp(
        tensorflow::DT_UINT8, TensorShape({std::max<int64_t>(n_bytes, 1)}), &scratch_.back());
    if (status.ok()) return scratch_.back().data();
    context_->SetStatus(status);
    return nullptr;
  }

  bool IsWanted(int output) const override { return context_->output_required(output); }

  void ParallelFor(int64_t n, int64_t cycles,
                   const std::function<void(int64_t, int64_t)>& work) override {
    metal_ops::ParallelFor(context_, n, cycles, work);
  }

  int64_t n_threads() const override { return NumThreads(context_); }

  void RunTasks(int64_t n_tasks, int64_t threads,
                const std::function<void(int64_t, int64_t)>& work) override {
    metal_ops::RunTasks(context_, n_tasks, threads, work);
  }

  const float* Read(int input, int64_t begin, int64_t n, float* buffer) const override {
    return floats(input).Read(begin, n, buffer);
  }

  void Store(int output, int64_t begin, int64_t n, const float* values) const override {
    const MutableFloatArray to = float_out(output);
    if (to.type == FloatType::kFloat) {
      std::copy_n(values, n, static_cast<float*>(to.data) + begin);
    } else {
      to.Store(begin, n, values);
    }
  }

 private:
  OpKernelContext* const context_;
  mutable bool looked_at_values_ = false;
  std::vector<Tensor> scratch_;
  // Unlocked before they are let go of: members are destroyed from the last.
  std::vector<tensorflow::core::RefCountPtr<Var>> variables_;
  std::vector<std::unique_ptr<tensorflow::mutex_lock>> locks_;
};

std::map<std::string, void (*)(CpuCall&)>& Kernels() {
  static auto* const kernels = new std::map<std::string, void (*)(CpuCall&)>();
  return *kernels;
}

class DeclaredKernel : public OpKernel {
 public:
  explicit DeclaredKernel(OpKernelConstruction* context)
      : OpKernel(context), op_(*FindOp(type_string())), run_(Kernels().at(type_string())) {
    if (context->HasAttr(kPublicWords)) {
      OP_REQUIRES_OK(context, context->GetAttr(kPublicWords, &note_));
    }
    OP_REQUIRES_OK(context, ReadAttrs(op_, context, &attrs_));
    OpCall call(op_, attrs_, {});
    call.CheckAttrs();
    OP_REQUIRES_OK(context, Said(ToStatus(call.shapes)));
  }

  void Compute(OpKernelContext* context) override {
    TensorFlowCall call(op_, attrs_, context);
    if (op_.has_variables()) OP_REQUIRES_OK(context, Said(call.LockVariables()));
    if (call.CheckUnless(&checked_)) {
      for (int i = 0; i < context->num_outputs(); ++i) {
        const ArgShape& shape = call.out_shapes[i];
        if (!IsAllKnown(shape)) continue;  // the kernel will say
        if (!call.Allocate(i, shape.dims, i == 0 ? op_.reused_input : -1)) return;
      }
      run_(call);
    }
    if (!call.shapes.ok()) context->SetStatus(Said(ToStatus(call.shapes)));
  }

  // A kernel runs where its inputs were made. Work that is worth several threads takes them itself,
  // and for the rest waking a thread takes longer than the work: one token of a language model was 30
  // such.
  bool IsExpensive() override { return false; }

 private:
  // As the public function says it, where one made the node.
  absl::Status Said(const absl::Status& status) const {
    if (status.ok() || note_.empty()) return status;
    return absl::Status(status.code(),
                        InPublicWords(op_.name, note_, std::string(status.message())));
  }

  const OpDeclaration& op_;
  std::string note_;
  void (*const run_)(CpuCall&);
  std::vector<AttrValue> attrs_;
  std::shared_ptr<const Checked> checked_;  // the last one
};

OpKernel* Create(OpKernelConstruction* context) { return new DeclaredKernel(context); }

void RegisterOp(const OpDeclaration& op) {
  tensorflow::OpRegistry::Global()->Register(
      [&op](tensorflow::OpRegistrationData* data) -> absl::Status {
        tensorflow::OpDefBuilder builder(op.name);
        for (const OpAttr& attr : op.attrs) builder.Attr(attr.spec);
        for (const OpArg& input : op.inputs) builder.Input(input.name + ": " + input.type);
        for (const OpArg& output : op.outputs) builder.Output(output.name + ": " + output.type);
        if (op.has_variables()) builder.SetIsStateful();
        builder.Doc(internal::Description(op));
        builder.SetShapeFn([&op](InferenceContext* c) { return InferShapes(op, c); });
        return builder.Finalize(data);
      });
}

}  // namespace

DeclaredOp::DeclaredOp(const OpBuilder& builder) {
  const OpDeclaration& op = internal::Remember(builder.op_);
  RegisterOp(op);
  if (op.elementwise.cpu != nullptr) CpuKernel(op.name.c_str(), op.elementwise.cpu);
}

CpuKernel::CpuKernel(const char* op, void (*kernel)(CpuCall&)) {
  Kernels()[op] = kernel;
  const tensorflow::KernelDef* def =
      tensorflow::KernelDefBuilder(op).Device(tensorflow::DEVICE_CPU).Build();
  tensorflow::kernel_factory::OpKernelRegistrar(def, "metal_ops::DeclaredKernel", Create);
}

}  // namespace metal_ops

// The argument checks for Python: a line per op, attribute and input, its parts between tabs.
extern "C" __attribute__((visibility("default"), used)) const char* metal_ops_declarations() {
  static const std::string* const text = [] {
    auto* const lines = new std::string();
    for (const metal_ops::OpDeclaration* op : metal_ops::internal::AllOps()) {
      *lines += "op\t" + op->name + "\t" + (op->differentiable ? "1" : "0") + "\n";
      for (const metal_ops::OpAttr& attr : op->attrs) *lines += "attr\t" + attr.spec + "\n";
      for (const metal_ops::OpArg& input : op->inputs) {
        *lines += "input\t" + input.type + "\t" +
                  (input.memory == metal_ops::Memory::kDevice ? "0\t" : "1\t") + input.variable +
                  "\t" + input.shape + "\n";
      }
    }
    return lines;
  }();
  return text->c_str();
}
