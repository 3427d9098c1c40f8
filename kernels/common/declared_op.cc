// Declarations of ops and what follows from them: see op.h.

#include <algorithm>
#include <map>

#include "kernels/common/op.h"

namespace metal_ops {
namespace {

std::map<std::string, OpDeclaration>& Ops() {
  static auto* const ops = new std::map<std::string, OpDeclaration>();
  return *ops;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(Trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

// "[points, 3]" -> {"points", "3"}.
std::vector<std::string> Dims(const std::string& shape) {
  const std::string inside = Trimmed(shape.substr(1, shape.size() - 2));
  return inside.empty() ? std::vector<std::string>() : Split(inside, ',');
}

bool HasPrefix(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

DType TypeOf(const std::string& name) {
  static const std::map<std::string, DType> kTypes = {
      {"float", DType::kFloat},   {"double", DType::kDouble}, {"int32", DType::kInt32},
      {"uint8", DType::kUint8},   {"int16", DType::kInt16},   {"int8", DType::kInt8},
      {"int64", DType::kInt64},   {"bool", DType::kBool},     {"bfloat16", DType::kBfloat16},
      {"uint16", DType::kUint16}, {"half", DType::kHalf},     {"resource", DType::kResource},
      {"uint32", DType::kUint32}, {"uint64", DType::kUint64},
  };
  const auto found = kTypes.find(name);
  return found == kTypes.end() ? DType::kNone : found->second;
}

// TensorFlow's realnumbertype.
const char kRealNumbers[] =
    "float, double, int32, int64, uint8, int16, int8, uint16, half, bfloat16, uint32, uint64";

// "T: {float, half} = DT_FLOAT" -> its kind and the types allowed.
void ReadSpec(OpAttr* attr) {
  const size_t colon = attr->spec.find(':');
  attr->name = Trimmed(attr->spec.substr(0, colon));
  std::string type = Trimmed(attr->spec.substr(colon + 1));
  const bool braces = !type.empty() && type[0] == '{';
  if (braces) {
    const std::string inside = type.substr(1, type.find('}') - 1);
    if (inside.find('\'') != std::string::npos) {
      attr->kind = AttrKind::kText;
      return;
    }
    attr->kind = AttrKind::kType;
    for (const std::string& name : Split(inside, ',')) attr->types.push_back(TypeOf(name));
  } else if (HasPrefix(type, "realnumbertype")) {
    attr->kind = AttrKind::kType;
    for (const std::string& name : Split(kRealNumbers, ',')) attr->types.push_back(TypeOf(name));
  } else if (HasPrefix(type, "list(int")) {
    attr->kind = AttrKind::kInts;
  } else if (HasPrefix(type, "list(string")) {
    attr->kind = AttrKind::kTexts;
  } else if (HasPrefix(type, "list(")) {
    attr->kind = AttrKind::kTypes;
  } else if (HasPrefix(type, "bool")) {
    attr->kind = AttrKind::kBool;
  } else if (HasPrefix(type, "float")) {
    attr->kind = AttrKind::kFloat;
  } else if (HasPrefix(type, "string")) {
    attr->kind = AttrKind::kText;
  }
}

OpArg MakeArg(const char* name_and_type, const char* shape, const char* doc, Memory memory) {
  const std::string text = name_and_type;
  const size_t colon = text.find(':');
  return {Trimmed(text.substr(0, colon)), Trimmed(text.substr(colon + 1)), shape, doc, memory};
}

void CheckRange(ArgShapes* shapes, const OpAttr& attr, double value, const std::string& text) {
  const Range& range = attr.range;
  const bool below = range.high < std::numeric_limits<double>::infinity();
  std::string allowed;
  if (below) {
    // As one says it of numbers that are counted, and of those that are measured.
    const std::string low = ToText(static_cast<float>(range.low));
    const std::string high = ToText(static_cast<float>(range.high));
    allowed = attr.kind == AttrKind::kInt ? "between " + low + " and " + high
                                          : "in [" + low + ", " + high + "]";
  } else {
    allowed = ToText(static_cast<float>(range.low)) + " or more";
  }
  const std::string remedy = range.remedy;
  shapes->Require(value >= range.low && value <= range.high,
                  attr.name + " must be " + allowed + ", got " + text + "." +
                      (remedy.empty() ? "" : " " + remedy));
}

}  // namespace

int OpDeclaration::Attr(const std::string& attr) const {
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (attrs[i].name == attr) return static_cast<int>(i);
  }
  return -1;
}

const AttrValue& OpCall::Get(const char* attr) const { return attrs_.at(op.Attr(attr)); }

bool OpCall::CheckAttrs() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const OpAttr& attr = op.attrs[i];
    if (attr.range.low == -kInfinity && attr.range.high == kInfinity) continue;
    if (attr.kind == AttrKind::kFloat) {
      const float value = std::get<float>(attrs_[i]);
      CheckRange(&shapes, attr, value, ToText(value));
    } else if (attr.kind == AttrKind::kInt) {
      const int64_t value = std::get<int64_t>(attrs_[i]);
      CheckRange(&shapes, attr, static_cast<double>(value), std::to_string(value));
    }
  }
  if (shapes.ok() && op.check_attrs != nullptr) op.check_attrs(*this);
  return shapes.ok();
}

bool OpCall::CheckAll() {
  if (!CheckAttrs()) return false;
  for (size_t i = 0; i < op.inputs.size() && i < in_shapes.size(); ++i) {
    const OpArg& input = op.inputs[i];
    if (input.shape[0] == '[') {
      shapes.Expect(input.name.c_str(), in_shapes[i], Dims(input.shape));
    } else if (HasPrefix(input.shape, "like ")) {
      const std::string like = input.shape.substr(5);
      for (size_t j = 0; j < op.inputs.size(); ++j) {
        if (op.inputs[j].name != like) continue;
        shapes.ExpectLike(input.name.c_str(), in_shapes[i], like.c_str(), in_shapes[j]);
      }
    }
  }
  out_shapes.assign(op.outputs.size(), ArgShape());
  if (shapes.ok() && op.check != nullptr) op.check(*this);
  if (!shapes.ok()) return false;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (op.outputs[i].shape != "any") out_shapes[i] = OutputShape(op.outputs[i]);
  }
  return true;
}

ArgShape OpCall::OutputShape(const OpArg& output) const {
  std::string shape = output.shape;
  // "like weights if t_gradients": else it is empty.
  if (const size_t at = shape.find(" if "); at != std::string::npos) {
    if (!Bool(shape.substr(at + 4).c_str())) return ArgShape({0});
    shape = shape.substr(0, at);
  }
  if (HasPrefix(shape, "like ")) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i].name == shape.substr(5)) return in_shapes[i];
    }
    return ArgShape();
  }
  std::vector<int64_t> dims;
  for (const std::string& dim : Dims(shape)) {
    int64_t size = 1;
    for (const std::string& factor : Split(dim, '*')) {
      const int64_t by = Size(factor);
      size = size < 0 || by < 0 ? -1 : size * by;
    }
    dims.push_back(size);
  }
  return ArgShape(std::move(dims));
}

std::vector<float> OpCall::FormulaValues() const {
  std::vector<float> values;
  for (const AttrValue& value : attrs_) {
    if (const float* number = std::get_if<float>(&value)) values.push_back(*number);
  }
  return values;
}

OpBuilder& OpBuilder::Attr(const char* spec, const char* doc, Range range) {
  OpAttr attr;
  attr.spec = spec;
  attr.doc = doc;
  attr.range = range;
  ReadSpec(&attr);
  op_.attrs.push_back(std::move(attr));
  return *this;
}

OpBuilder& OpBuilder::Input(const char* name_and_type, const char* shape, const char* doc,
                            Memory memory) {
  op_.inputs.push_back(MakeArg(name_and_type, shape, doc, memory));
  return *this;
}

OpBuilder& OpBuilder::Output(const char* name_and_type, const char* shape, const char* doc,
                             Memory memory) {
  op_.outputs.push_back(MakeArg(name_and_type, shape, doc, memory));
  return *this;
}

const OpDeclaration* FindOp(const std::string& name) {
  const auto found = Ops().find(name);
  return found == Ops().end() ? nullptr : &found->second;
}

namespace internal {

const OpDeclaration& Remember(const OpDeclaration& op) {
  return Ops().emplace(op.name, op).first->second;
}

std::vector<const OpDeclaration*> AllOps() {
  std::vector<const OpDeclaration*> all;
  for (const auto& [name, op] : Ops()) all.push_back(&op);
  return all;
}

std::string Description(const OpDeclaration& op) {
  std::string text = op.doc + "\n\n";
  const auto add = [&](const std::string& name, const std::string& doc) {
    if (!doc.empty()) text += name + ": " + doc + "\n";
  };
  for (const OpArg& input : op.inputs) add(input.name, input.doc);
  for (const OpArg& output : op.outputs) add(output.name, output.doc);
  for (const OpAttr& attr : op.attrs) add(attr.name, attr.doc);
  return text;
}

}  // namespace internal
}  // namespace metal_ops
