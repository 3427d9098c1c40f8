// Arrays and their element types: see tensor.h and dtype.h.

#include "kernels/runtime/tensor.h"

#include <algorithm>
#include <limits>

namespace metal_ops {

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

namespace {

// The names of each type.
struct TypeNames {
  DType type;
  const char *python, *shader;
};
constexpr TypeNames kTypes[] = {
    {DType::kFloat, "float32", "float"},
    {DType::kHalf, "float16", "half"},
    {DType::kBfloat16, "bfloat16", "bfloat"},
    {DType::kDouble, "float64", nullptr},
    {DType::kInt8, "int8", "char"},
    {DType::kInt16, "int16", "short"},
    {DType::kInt32, "int32", "int"},
    {DType::kInt64, "int64", "long"},
    {DType::kUint8, "uint8", "uchar"},
    {DType::kUint16, "uint16", "ushort"},
    {DType::kUint32, "uint32", "uint"},
    {DType::kUint64, "uint64", "ulong"},
    {DType::kBool, "bool", "bool"},
    {DType::kComplex64, "complex64", "float2"},
    {DType::kComplex128, "complex128", nullptr},
};

const TypeNames* Find(DType type) {
  for (const TypeNames& names : kTypes) {
    if (names.type == type) return &names;
  }
  return nullptr;
}

}  // namespace

std::string ToString(DType type) {
  const TypeNames* const names = Find(type);
  return names != nullptr ? names->python : "dtype " + std::to_string(static_cast<int>(type));
}

const char* ShaderType(DType type) {
  const TypeNames* const names = Find(type);
  return names == nullptr ? nullptr : names->shader;
}

int64_t NumElements(const Shape& shape) {
  if (std::any_of(shape.begin(), shape.end(), [](int64_t dim) { return dim < 0; })) return -1;
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim == 0) return 0;
    if (count > std::numeric_limits<int64_t>::max() / dim) return -1;
    count *= dim;
  }
  return count;
}

}  // namespace metal_ops
