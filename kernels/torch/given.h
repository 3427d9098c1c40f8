// A call's inputs and attributes from PyTorch, and their checks before those of declarations.

#ifndef METAL_OPS_KERNELS_TORCH_GIVEN_H_
#define METAL_OPS_KERNELS_TORCH_GIVEN_H_

#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/op.h"
#include "kernels/torch/schema.h"

namespace metal_ops {

using torch::headeronly::ScalarType;

struct KnownType {
  ScalarType torch;
  DType ours;
  const char* name;
};
inline constexpr KnownType kTypes[] = {
    {ScalarType::Float, DType::kFloat, "float32"},
    {ScalarType::Double, DType::kDouble, "float64"},
    {ScalarType::Half, DType::kHalf, "float16"},
    {ScalarType::BFloat16, DType::kBfloat16, "bfloat16"},
    {ScalarType::Int, DType::kInt32, "int32"},
    {ScalarType::Long, DType::kInt64, "int64"},
    {ScalarType::Short, DType::kInt16, "int16"},
    {ScalarType::Char, DType::kInt8, "int8"},
    {ScalarType::Byte, DType::kUint8, "uint8"},
    {ScalarType::UInt16, DType::kUint16, "uint16"},
    {ScalarType::UInt32, DType::kUint32, "uint32"},
    {ScalarType::UInt64, DType::kUint64, "uint64"},
    {ScalarType::Bool, DType::kBool, "bool"},
};

inline std::string NameOf(DType type) {
  for (const KnownType& known : kTypes) {
    if (known.ours == type) return known.name;
  }
  return "another type";
}

// "float32, float16 or bfloat16".
inline std::string Names(const std::vector<DType>& types) {
  std::string names;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) names += i + 1 == types.size() ? " or " : ", ";
    names += NameOf(types[i]);
  }
  return names;
}

// Python sees a ValueError. By the functions' names: HashEncode is hash_encode there.
[[noreturn]] inline void Refuse(const TorchOp& op, std::string sentence) {
  if (sentence.rfind(op.declared->name + ": ", 0) == 0) {
    sentence.erase(0, op.declared->name.size() + 2);
  }
  throw std::invalid_argument(op.name + ": " + sentence);
}

// An input's type, by the name that Python has for it.
struct GivenType {
  DType type;
  std::string name;
};

// A call before its attributes are known: types of all tensors, and the lengths of lists.
struct Given {
  std::vector<GivenType> types;
  std::vector<int> counts;  // of each declared input
};

inline std::string InputName(const OpArg& input, int at) {
  return input.list.empty() ? input.name : input.name + "[" + std::to_string(at) + "]";
}

// Attributes that follow from the inputs: the type T of "x: T", the length of a list.
inline void DeduceAttrs(const TorchOp& op, const Given& given, std::vector<AttrValue>* attrs) {
  for (size_t a = 0; a < op.declared->attrs.size(); ++a) {
    const OpAttr& attr = op.declared->attrs[a];
    if (op.attrs[a].from < 0) continue;
    const int count = given.counts[op.attrs[a].from];
    const OpArg& input = op.declared->inputs[op.attrs[a].from];
    int first = 0;
    for (int i = 0; i < op.attrs[a].from; ++i) first += given.counts[i];
    if (attr.kind == AttrKind::kInt) {
      (*attrs)[a] = int64_t{count};
      continue;
    }
    std::vector<DType> types;
    for (int i = 0; i < count; ++i) {
      const GivenType& type = given.types[first + i];
      const std::vector<DType>& allowed = op.attrs[a].types;
      if (std::find(allowed.begin(), allowed.end(), type.type) == allowed.end()) {
        Refuse(op, InputName(input, i) + " must be of dtype " + Names(allowed) + ", got " +
                       type.name + ".");
      }
      types.push_back(type.type);
    }
    if (attr.kind == AttrKind::kType) {
      (*attrs)[a] = types[0];
    } else {
      (*attrs)[a] = std::move(types);
    }
  }
  for (size_t a = 0; a < op.declared->attrs.size(); ++a) {
    const std::vector<DType>& types = op.declared->attrs[a].types;
    const auto* type = std::get_if<DType>(&(*attrs)[a]);
    if (type != nullptr && std::find(types.begin(), types.end(), *type) == types.end()) {
      Refuse(op, op.declared->attrs[a].name + " must be " + Names(types) + ", got " +
                     NameOf(*type) + ".");
    }
    const std::vector<std::string>& allowed = op.attrs[a].texts;
    const auto* text = std::get_if<std::string>(&(*attrs)[a]);
    if (text == nullptr || allowed.empty()) continue;
    if (std::find(allowed.begin(), allowed.end(), *text) != allowed.end()) continue;
    std::string names;
    for (size_t i = 0; i < allowed.size(); ++i) {
      names += (i == 0 ? "'" : i + 1 == allowed.size() ? " or '" : ", '") + allowed[i] + "'";
    }
    Refuse(op, op.declared->attrs[a].name + " must be " + names + ", got '" + *text + "'.");
  }
}

inline void CheckTypes(const TorchOp& op, const OpCall& call, const Given& given) {
  for (size_t i = 0; i < given.types.size(); ++i) {
    const DType expected = call.InputType(static_cast<int>(i));
    if (given.types[i].type == expected) continue;
    const OpArg& arg = call.InputArg(static_cast<int>(i));
    const int attr = op.declared->Attr(arg.type);
    const int from = attr < 0 ? -1 : op.attrs[attr].from;
    Refuse(op, call.InputName(static_cast<int>(i)) + " must be of dtype " + NameOf(expected) +
                   (from < 0 ? "" : " like " + op.declared->inputs[from].name) + ", got " +
                   given.types[i].name + ".");
  }
}

inline DType OutputType(const OpCall& call, int output) {
  const std::string& type = call.op.outputs[output].type;
  return call.op.Attr(type) >= 0 ? call.Type(type.c_str()) : TypeNamed(type);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TORCH_GIVEN_H_
