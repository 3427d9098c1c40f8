// The schema of a declared op as PyTorch writes it, and its description for Python.

#ifndef METAL_OPS_KERNELS_TORCH_SCHEMA_H_
#define METAL_OPS_KERNELS_TORCH_SCHEMA_H_

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

struct TorchAttr {
  int from = -1;                   // the input that it follows from, which is then no argument
  std::vector<DType> types;        // allowed ones
  std::vector<std::string> texts;  // the same of text; empty: any
};

struct TorchOp {
  const OpDeclaration* declared;
  void (*kernel)(CpuCall&);
  std::string name, schema;  // "hash_encode"
  std::vector<TorchAttr> attrs;
};

// "MetalFusedConv2D" is metal_fused_conv2d, as in TensorFlow's generated functions.
inline std::string SnakeCase(const std::string& name) {
  std::string snake;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool upper = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    const bool after_digit = i > 0 && std::isdigit(static_cast<unsigned char>(name[i - 1])) != 0;
    if (upper && i > 0 && !after_digit) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return snake;
}

inline DType TypeNamed(const std::string& name) {
  static const std::pair<const char*, DType> kNames[] = {
      {"float", DType::kFloat},   {"half", DType::kHalf},     {"bfloat16", DType::kBfloat16},
      {"double", DType::kDouble}, {"int32", DType::kInt32},   {"int64", DType::kInt64},
      {"uint8", DType::kUint8},   {"uint16", DType::kUint16}, {"uint32", DType::kUint32},
      {"uint64", DType::kUint64}, {"int8", DType::kInt8},     {"int16", DType::kInt16},
      {"bool", DType::kBool}};
  for (const auto& [known, type] : kNames) {
    if (name == known) return type;
  }
  return DType::kNone;
}

// Words between separators, without blanks and quotes.
inline std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') words.emplace_back();
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') words.back() += c;
  }
  return words;
}

// "= 0.5" of "lambd: float = 0.5"; empty: there is none. ">= 0" of lists' lengths is none.
inline std::string DefaultOf(const OpAttr& attr) {
  const size_t at = attr.spec.rfind(" = ");
  return at == std::string::npos ? "" : attr.spec.substr(at + 3);
}

inline DType DefaultType(const OpAttr& attr) {
  std::string name = DefaultOf(attr);
  if (name.rfind("DT_", 0) == 0) name.erase(0, 3);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const DType type = TypeNamed(name);
  return type == DType::kNone && !attr.types.empty() ? attr.types[0] : type;
}

inline std::string SchemaOf(const TorchOp& op) {
  const OpDeclaration& declared = *op.declared;
  std::string text = op.name + "(", comma;
  for (const OpArg& input : declared.inputs) {
    text += comma + "Tensor" + (input.list.empty() ? " " : "[] ") + input.name;
    comma = ", ";
  }
  comma += "*, ";
  for (size_t i = 0; i < declared.attrs.size(); ++i) {
    if (op.attrs[i].from >= 0) continue;
    const OpAttr& attr = declared.attrs[i];
    std::string value = DefaultOf(attr), type = "int";
    switch (attr.kind) {
      case AttrKind::kBool:
        type = "bool";
        value = value == "true" ? "True" : value.empty() ? "" : "False";
        break;
      case AttrKind::kFloat: {
        type = "float";
        char digits[32];
        std::snprintf(digits, sizeof(digits), "%.9g", std::strtod(value.c_str(), nullptr));
        if (!value.empty()) value = digits;
        break;
      }
      case AttrKind::kText:
        type = "str";
        std::replace(value.begin(), value.end(), '\'', '"');
        break;
      case AttrKind::kInts:
        type = "int[]";
        break;
      case AttrKind::kTexts:
        type = "str[]";
        break;
      case AttrKind::kType:
        type = "ScalarType?";
        value = "None";
        break;
      default:
        break;
    }
    text += comma + type + " " + attr.name + (value.empty() ? "" : "=" + value);
    comma = ", ";
  }
  std::string results;
  for (size_t i = 0; i < declared.outputs.size(); ++i) results += i == 0 ? "Tensor" : ", Tensor";
  return text + ") -> " + (declared.outputs.size() == 1 ? results : "(" + results + ")");
}

inline TorchOp MakeTorchOp(const OpDeclaration& declared, void (*kernel)(CpuCall&)) {
  TorchOp op{&declared, kernel, SnakeCase(declared.name), "", {}};
  for (const OpAttr& attr : declared.attrs) {
    TorchAttr made;
    for (size_t i = 0; made.from < 0 && i < declared.inputs.size(); ++i) {
      const OpArg& input = declared.inputs[i];
      const bool is_type = input.type == attr.name && input.list.empty();
      if (is_type || input.list == attr.name) made.from = static_cast<int>(i);
    }
    made.types = attr.types;
    const size_t open = attr.spec.find('{');
    if (open != std::string::npos) {
      const std::string inside = attr.spec.substr(open, attr.spec.find('}') - open);
      for (const std::string& word : Words(inside)) {
        if (attr.kind == AttrKind::kText) made.texts.push_back(word);
        if (attr.kind == AttrKind::kTypes) made.types.push_back(TypeNamed(word));
      }
    }
    op.attrs.push_back(std::move(made));
  }
  op.schema = SchemaOf(op);
  return op;
}

// For metal_ops/torch/_declared.py.
inline std::string Described(const TorchOp& op) {
  const OpDeclaration& declared = *op.declared;
  std::string lines = "op\t" + op.name + "\t" + declared.name + "\t" +
                      (declared.differentiable ? "1" : "0") + "\t" + op.schema + "\n";
  for (size_t i = 0; i < declared.attrs.size(); ++i) {
    lines += "attr\t" + declared.attrs[i].name + "\t" + (op.attrs[i].from < 0 ? "1" : "0") + "\t" +
             DefaultOf(declared.attrs[i]) + "\n";
  }
  for (const OpArg& input : declared.inputs) {
    lines += "input\t" + input.name + "\t" + (input.list.empty() ? "0" : "1") + "\t" + input.type +
             "\t" + input.shape + "\n";
  }
  for (const OpArg& output : declared.outputs) {
    lines += "output\t" + output.name + "\t" + output.type + "\t" + output.shape + "\n";
  }
  for (const std::string& rule : internal::Gradients()[declared.name]) {
    lines += "gradient\t" + rule + "\n";
  }
  return lines;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TORCH_SCHEMA_H_
