// PyTorch's adapter: ops declared in kernels/ become torch.ops.metal_ops.*, and their CPU kernels its
// kernels. By PyTorch's stable ABI alone: one library serves each release from 2.10 on.
//
// Python (metal_ops/torch) registers the rest: shapes of tensors without memory, from
// metal_ops_torch_infer, and gradients, from metal_ops_torch_declarations.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/op.h"
#include "kernels/torch/call.h"
#include "kernels/torch/given.h"
#include "kernels/torch/schema.h"

namespace metal_ops {
namespace {

std::map<std::string, void (*)(CpuCall&)>& Kernels() {
  static auto* const kernels = new std::map<std::string, void (*)(CpuCall&)>();
  return *kernels;
}

// The value of an attribute on PyTorch's stack, which is let go of there.
AttrValue Taken(const OpAttr& attr, StableIValue value) {
  using torch::stable::detail::to;
  switch (attr.kind) {
    case AttrKind::kBool:
      return to<bool>(value);
    case AttrKind::kInt:
      return to<int64_t>(value);
    case AttrKind::kFloat:
      return static_cast<float>(to<double>(value));
    case AttrKind::kText:
      return to<std::string>(value);
    case AttrKind::kInts:
      return to<std::vector<int64_t>>(value);
    case AttrKind::kTexts:
      return to<std::vector<std::string>>(value);
    default:
      break;
  }
  const auto type = to<std::optional<ScalarType>>(value);
  if (!type) return DefaultType(attr);
  for (const KnownType& known : kTypes) {
    if (known.torch == *type) return known.ours;
  }
  return DType::kNone;
}

GivenType TypeOf(const Tensor& tensor) {
  const ScalarType type = tensor.scalar_type();
  for (const KnownType& known : kTypes) {
    if (known.torch == type) return {known.ours, known.name};
  }
  if (type == ScalarType::ComplexFloat) return {DType::kNone, "complex64"};
  if (type == ScalarType::ComplexDouble) return {DType::kNone, "complex128"};
  std::string name = torch::headeronly::toString(type);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return {DType::kNone, name};
}

void Run(const TorchOp& op, StableIValue* stack, uint64_t n_outputs) {
  using torch::stable::detail::to;
  const OpDeclaration& declared = *op.declared;
  std::vector<Tensor> tensors;
  Given given;
  uint64_t at = 0;
  for (const OpArg& input : declared.inputs) {
    if (input.list.empty()) {
      tensors.push_back(to<Tensor>(stack[at++]));
      given.counts.push_back(1);
    } else {
      std::vector<Tensor> list = to<std::vector<Tensor>>(stack[at++]);
      given.counts.push_back(static_cast<int>(list.size()));
      for (Tensor& tensor : list) tensors.push_back(std::move(tensor));
    }
  }
  std::vector<AttrValue> attrs(declared.attrs.size());
  for (size_t a = 0; a < attrs.size(); ++a) {
    if (op.attrs[a].from < 0) attrs[a] = Taken(declared.attrs[a], stack[at++]);
  }
  for (size_t input = 0, i = 0; input < declared.inputs.size(); ++input) {
    const OpArg& arg = declared.inputs[input];
    for (int n = 0; n < given.counts[input]; ++n, ++i) {
      int32_t device = 0, layout = 0;
      Check(aoti_torch_get_device_type(tensors[i].get(), &device));
      Check(aoti_torch_get_layout(tensors[i].get(), &layout));
      if (device != aoti_torch_device_type_cpu() || layout != aoti_torch_layout_strided()) {
        Refuse(op, InputName(arg, n) +
                       " must be a dense tensor in the CPU's memory, got one of another device or "
                       "layout. Move it there: .to_dense().cpu().");
      }
      given.types.push_back(TypeOf(tensors[i]));
      if (!tensors[i].is_contiguous()) tensors[i] = torch::stable::contiguous(tensors[i]);
    }
  }
  DeduceAttrs(op, given, &attrs);
  TorchCall call(op, attrs, tensors, given);
  if (call.CheckAll()) {
    for (size_t i = 0; call.shapes.ok() && i < declared.outputs.size(); ++i) {
      const ArgShape& shape = call.out_shapes[i];
      if (IsAllKnown(shape)) call.Allocate(static_cast<int>(i), shape.dims, -1);
    }
    if (call.shapes.ok()) op.kernel(call);
  }
  if (!call.shapes.ok()) Refuse(op, call.shapes.error());
  for (uint64_t i = 0; i < n_outputs; ++i) {
    if (call.results[i] == nullptr)
      Refuse(op, "output " + declared.outputs[i].name + " is missing.");
  }
  for (uint64_t i = 0; i < n_outputs; ++i) {
    stack[i] = torch::stable::detail::from(call.results[i].release());
  }
}

// PyTorch's kernels are plain functions, one for each op.
constexpr size_t kMostOps = 256;

const std::vector<TorchOp>& Ops() {
  static const auto* const ops = [] {
    auto* const made = new std::vector<TorchOp>();
    for (const OpDeclaration* op : internal::AllOps()) {
      const auto kernel = Kernels().find(op->name);
      // Updates of variables are not offered: metal_ops/torch has no optimizers yet.
      if (kernel == Kernels().end() || op->has_variables()) continue;
      made->push_back(MakeTorchOp(*op, kernel->second));
    }
    return made;
  }();
  return *ops;
}

template <size_t kOp>
void Boxed(StableIValue* stack, uint64_t, uint64_t n_outputs) {
  Run(Ops()[kOp], stack, n_outputs);
}

using BoxedKernel = void (*)(StableIValue*, uint64_t, uint64_t);
template <size_t... kOp>
constexpr std::array<BoxedKernel, sizeof...(kOp)> BoxedKernels(std::index_sequence<kOp...>) {
  return {Boxed<kOp>...};
}

// ---- shapes of tensors without memory -----------------------------------------------------------

// Parts between a character that ends each of them.
std::vector<std::string> Parts(const std::string& text, char end) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, end);) parts.push_back(part);
  return parts;
}

AttrValue Read(const OpAttr& attr, const std::string& text) {
  constexpr char kEnd = '\x1f';
  std::vector<int64_t> ints;
  switch (attr.kind) {
    case AttrKind::kBool:
      return text == "True";
    case AttrKind::kInt:
      return int64_t{std::atoll(text.c_str())};
    case AttrKind::kFloat:
      return static_cast<float>(std::strtod(text.c_str(), nullptr));
    case AttrKind::kInts:
      for (const std::string& part : Parts(text, kEnd)) ints.push_back(std::atoll(part.c_str()));
      return ints;
    case AttrKind::kTexts:
      return Parts(text, kEnd);
    case AttrKind::kType:
      for (const KnownType& type : kTypes) {
        if (type.name == text) return type.ours;
      }
      return text.rfind("DT_", 0) == 0 ? DefaultType(attr) : DType::kNone;
    default:
      return text;
  }
}

// A line for each part of a call, its words between tabs: "input" begins one of the op's inputs,
// "tensor float32 3,-2" is a tensor of it, "attr degree 4" an attribute. Sizes below 0 are unknown.
std::string Inferred(const std::string& name, const std::string& request) {
  const TorchOp* op = nullptr;
  for (const TorchOp& one : Ops()) {
    if (one.name == name) op = &one;
  }
  if (op == nullptr) throw std::invalid_argument("metal_ops: there is no op " + name + ".");
  Given given;
  std::vector<ArgShape> shapes;
  std::vector<AttrValue> attrs(op->declared->attrs.size());
  for (const std::string& line : Parts(request, '\n')) {
    std::vector<std::string> words = Parts(line, '\t');
    words.resize(3);
    if (words[0] == "input") {
      given.counts.push_back(0);
    } else if (words[0] == "tensor") {
      ++given.counts.back();
      DType type = DType::kNone;
      for (const KnownType& known : kTypes) {
        if (known.name == words[1]) type = known.ours;
      }
      given.types.push_back({type, words[1]});
      std::vector<int64_t> dims;
      for (const std::string& dim : Parts(words[2], ',')) dims.push_back(std::atoll(dim.c_str()));
      shapes.emplace_back(std::move(dims));
    } else if (const int attr = op->declared->Attr(words[1]); attr >= 0) {
      attrs[attr] = Read(op->declared->attrs[attr], words[2]);
    }
  }
  DeduceAttrs(*op, given, &attrs);
  OpCall call(*op->declared, attrs, std::move(shapes));
  CheckTypes(*op, call, given);
  if (!call.CheckAll()) Refuse(*op, call.shapes.error());
  std::string lines;
  for (size_t i = 0; i < call.out_shapes.size(); ++i) {
    lines += NameOf(OutputType(call, static_cast<int>(i))) + "\t";
    if (!call.out_shapes[i].known_rank) lines += "?";
    for (const int64_t dim : call.out_shapes[i].dims) lines += std::to_string(dim) + ",";
    lines += "\n";
  }
  return lines;
}

}  // namespace

DeclaredOp::DeclaredOp(const OpBuilder& builder) {
  const OpDeclaration& op = internal::Remember(builder.op_);
  if (op.elementwise.cpu != nullptr) CpuKernel(op.name.c_str(), op.elementwise.cpu);
}

CpuKernel::CpuKernel(const char* op, void (*kernel)(CpuCall&)) { Kernels()[op] = kernel; }

}  // namespace metal_ops

#define METAL_OPS_EXPORT extern "C" __attribute__((visibility("default"), used))

extern "C" const char* metal_ops_simd_error();

// Registers all ops, once. Returns an error, else "".
METAL_OPS_EXPORT const char* metal_ops_torch_register() {
  using torch::stable::detail::StableLibrary;
  static thread_local std::string error;
  try {
    error = metal_ops_simd_error();
    if (!error.empty()) return error.c_str();
    const auto& ops = metal_ops::Ops();
    if (ops.size() > metal_ops::kMostOps) throw std::length_error("more ops than kMostOps");
    static constexpr auto kernels =
        metal_ops::BoxedKernels(std::make_index_sequence<metal_ops::kMostOps>());
    // For ever, as ops are.
    static auto* const definitions =
        new StableLibrary(StableLibrary::Kind::FRAGMENT, "metal_ops", nullptr, __FILE__, __LINE__);
    static auto* const implementations =
        new StableLibrary(StableLibrary::Kind::IMPL, "metal_ops", "CPU", __FILE__, __LINE__);
    for (size_t i = 0; i < ops.size(); ++i) {
      // Python registers the gradient of the one. The other has none, and no Python in its calls.
      for (const std::string& name : {ops[i].name, ops[i].name + ".kernel"}) {
        definitions->def((name + ops[i].schema.substr(ops[i].name.size())).c_str());
        implementations->impl(name.c_str(), kernels[i]);
      }
    }
  } catch (const std::exception& problem) {
    error = problem.what();
  }
  return error.c_str();
}

// The ops, a line for each part of one, its words between tabs.
METAL_OPS_EXPORT const char* metal_ops_torch_declarations() {
  static const std::string* const text = [] {
    auto* const lines = new std::string();
    for (const metal_ops::TorchOp& op : metal_ops::Ops()) *lines += metal_ops::Described(op);
    return lines;
  }();
  return text->c_str();
}

// Types and shapes of a call's outputs, a line each; or "!" and its error.
METAL_OPS_EXPORT const char* metal_ops_torch_infer(const char* op, const char* request) {
  static thread_local std::string answer;
  try {
    answer = metal_ops::Inferred(op, request);
  } catch (const std::exception& problem) {
    answer = std::string("!") + problem.what();
  }
  return answer.c_str();
}
