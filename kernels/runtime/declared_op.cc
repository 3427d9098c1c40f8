// Declarations of ops, their checks and registrations: see op.h.

#include <algorithm>
#include <cstdlib>
#include <map>

#include "kernels/runtime/op.h"

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
  return {
      Trimmed(text.substr(0, colon)), Trimmed(text.substr(colon + 1)), shape, doc, memory, {}, {}};
}

void CheckRange(ArgShapes* shapes, const OpAttr& attr, double value, const std::string& text) {
  const Range& range = attr.range;
  const bool below = range.high < std::numeric_limits<double>::infinity();
  std::string allowed;
  if (below) {
    // As one says it of numbers that are counted, and of those that are measured.
    allowed = attr.kind == AttrKind::kInt
                  ? "between " + std::to_string(static_cast<int64_t>(range.low)) + " and " +
                        std::to_string(static_cast<int64_t>(range.high))
                  : "in [" + ToText(static_cast<float>(range.low)) + ", " +
                        ToText(static_cast<float>(range.high)) + "]";
  } else {
    allowed = ToText(static_cast<float>(range.low)) + " or more";
  }
  const std::string remedy = range.remedy;
  shapes->Require(value >= range.low && value <= range.high,
                  attr.name + " must be " + allowed + ", got " + text + "." +
                      (remedy.empty() ? "" : " " + remedy));
}

}  // namespace

bool OpDeclaration::has_variables() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const OpArg& input) { return !input.variable.empty(); });
}

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

namespace {

// "[L + 1]" has one element at least: none would leave L below 0, which means not known.
void CheckSums(ArgShapes* shapes, const std::string& name, const ArgShape& given,
               const std::string& declared) {
  const std::vector<std::string> dims = Dims(declared);
  for (size_t i = 0; i < dims.size() && i < given.dims.size(); ++i) {
    const size_t plus = dims[i].find(" + ");
    if (plus == std::string::npos || given.dims[i] < 0) continue;
    shapes->Require(given.dims[i] >= std::atoll(&dims[i][plus + 3]),
                    name + " must have shape " + declared + ", got " + ToText(given) + ".");
  }
}

}  // namespace

bool OpCall::CheckAll() {
  if (!CheckAttrs()) return false;
  // Those first that define a dimension: then those that depend on it are the ones that do not fit.
  for (const bool dependent : {false, true}) {
    for (size_t i = 0; i < in_shapes.size(); ++i) {
      const int input = static_cast<int>(i);
      const std::string& shape = InputArg(input).shape;
      const std::string name = InputName(input);
      const bool like = HasPrefix(shape, "like ");
      if (dependent != (like || shape.find('*') != std::string::npos)) continue;
      if (shape[0] == '[') {
        CheckSums(&shapes, name, in_shapes[i], shape);
        shapes.Expect(name.c_str(), in_shapes[i], Dims(shape));
      } else if (like) {
        const char* const other = shape.c_str() + 5;
        shapes.ExpectLike(name.c_str(), in_shapes[i], other, in_shapes[Index(other)]);
      }
    }
    for (const OpSizes& sizes : op.sizes) {
      const int64_t size = Size(sizes.dim);
      if (size < 0 || sizes.good(size)) continue;
      const std::string input = shapes.SaidBy(sizes.dim);
      shapes.Require(false, input + " must have " + sizes.dim + " = " + sizes.allowed +
                                ", got shape " + ToText(in_shapes[Index(input.c_str())]) + ".");
    }
  }
  out_shapes.assign(op.outputs.size(), ArgShape());
  if (shapes.ok() && op.check != nullptr) op.check(*this);
  if (!shapes.ok()) return false;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (op.outputs[i].shape != "any") out_shapes[i] = OutputShape(op.outputs[i]);
  }
  return shapes.ok();
}

int OpCall::Count(const OpArg& input) const {
  if (input.list.empty()) return 1;
  const AttrValue& length = Get(input.list.c_str());
  if (const auto* types = std::get_if<std::vector<DType>>(&length)) {
    return static_cast<int>(types->size());
  }
  return static_cast<int>(std::get<int64_t>(length));
}

int OpCall::Index(const char* name) const {
  int at = 0;
  for (const OpArg& input : op.inputs) {
    if (input.name == name) return at;
    at += Count(input);
  }
  return -1;
}

const OpArg& OpCall::InputArg(int number) const {
  int at = 0;
  for (const OpArg& input : op.inputs) {
    at += Count(input);
    if (number < at) return input;
  }
  return op.inputs.back();
}

std::string OpCall::InputName(int input) const {
  const OpArg& arg = InputArg(input);
  if (arg.list.empty()) return arg.name;
  return arg.name + "[" + std::to_string(input - Index(arg.name.c_str())) + "]";
}

DType OpCall::InputType(int input) const {
  const OpArg& arg = InputArg(input);
  std::string type = arg.variable.empty() ? arg.type : arg.variable;
  if (type == arg.list) return Types(type.c_str())[input - Index(arg.name.c_str())];
  const bool wide = HasPrefix(type, "float(");
  if (wide) type = type.substr(6, type.size() - 7);
  const DType is = op.Attr(type) >= 0 ? Type(type.c_str()) : TypeOf(type);
  return !wide || is == DType::kDouble ? is : DType::kFloat;
}

void OpCall::CheckVariable(int input, DType type) {
  static const std::map<DType, std::string> kNames = {{DType::kFloat, "float32"},
                                                      {DType::kDouble, "float64"},
                                                      {DType::kBfloat16, "bfloat16"},
                                                      {DType::kHalf, "float16"}};
  const auto name = [](DType of) {
    const auto found = kNames.find(of);
    return found != kNames.end() ? found->second : "dtype " + std::to_string(static_cast<int>(of));
  };
  const DType expected = InputType(input);
  if (type == expected) return;
  shapes.Require(false, InputName(input) + " must be of dtype " + name(expected) + ", got " +
                            name(type) + ".");
}

void OpCall::CheckDistinct(int input, bool distinct) {
  if (distinct) return;
  shapes.Require(
      false,
      InputName(input) + " must be a variable of its own, got one that is another argument too.");
}

std::string OpCall::NoValue(int input) const {
  return op.name + ": " + InputName(input) +
         " must be a variable with a value, got one without. Initialize it (an optimizer's by "
         "optimizer.build(variables)).";
}

int64_t OpCall::SizeOrValue(const std::string& name) {
  const int64_t size = Size(name);
  if (size >= 0) return size;
  const int input = Index(name.c_str());
  if (input < 0 || HostValue(input) == nullptr) return -1;
  const int64_t value = InputType(input) == DType::kInt64 ? Scalar<int64_t>(name.c_str())
                                                          : Scalar<int32_t>(name.c_str());
  shapes.Require(value >= 0, name + " must be at least 0, got " + std::to_string(value) + ".");
  return value;
}

ArgShape OpCall::OutputShape(const OpArg& output) {
  std::string shape = output.shape;
  // "like weights if t_gradients": else it is empty.
  if (const size_t at = shape.find(" if "); at != std::string::npos) {
    if (!Bool(shape.substr(at + 4).c_str())) return ArgShape({0});
    shape = shape.substr(0, at);
  }
  if (HasPrefix(shape, "like ")) {
    return in_shapes[Index(shape.c_str() + 5)];
  }
  std::vector<int64_t> dims;
  for (const std::string& dim : Dims(shape)) {
    int64_t size = 1;
    for (const std::string& factor : Split(dim, '*')) {
      const int64_t by = SizeOrValue(factor);
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

OpBuilder& OpBuilder::Variable(const char* name_and_type, const char* shape, const char* doc) {
  OpArg arg = MakeArg(name_and_type, shape, doc, Memory::kHost);  // its handle is
  const size_t times = arg.type.find(" * ");
  const size_t begin = times == std::string::npos ? 0 : times + 3;
  arg.variable = arg.type.substr(begin);
  arg.type = arg.type.substr(0, begin) + "resource";
  op_.inputs.push_back(std::move(arg));
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
  OpDeclaration& known = Ops().emplace(op.name, op).first->second;
  for (OpArg& input : known.inputs) {
    const size_t times = input.type.find(" * ");
    if (times != std::string::npos) input.list = input.type.substr(0, times);
    const int attr = known.Attr(input.type);
    if (attr >= 0 && known.attrs[attr].kind == AttrKind::kTypes) input.list = input.type;
  }
  return known;
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
