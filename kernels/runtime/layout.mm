// Layouts as text: see layout.h.

#include "kernels/runtime/layout.h"

#import <Foundation/Foundation.h>

#include "kernels/runtime/platform.h"
#include "kernels/runtime/shader.h"

// hostmetal's bindings tell T& from T*, which Apple's do not.
@protocol Referring
- (BOOL)isReference;
@end

namespace metal_ops {
namespace {

// The reflection names a type, and holds its members in a second object.
std::string Describe(MTLDataType type, MTLStructType* structure, MTLArrayType* array) {
  const std::string name = TypeName(type);
  if (!name.empty()) return '"' + name + '"';
  if (type == MTLDataTypeArray && array != nil) {
    return StrCat(
        "[\"array\",", [array arrayLength], ',', [array stride], ',',
        Describe([array elementType], [array elementStructType], [array elementArrayType]), ']');
  }
  if (type != MTLDataTypeStruct || structure == nil) return "null";
  std::string text = "[\"struct\"";
  for (MTLStructMember* member in [structure members]) {
    text += StrCat(",[\"", [[member name] UTF8String], "\",", [member offset], ',',
                   Describe([member dataType], [member structType], [member arrayType]), ']');
  }
  return text + ']';
}

}  // namespace

std::string TypeName(MTLDataType type) {
  // Vectors of 2, 3 and 4 follow each scalar.
  for (NSUInteger width = 1; width <= 4; ++width) {
    if (NSUInteger(type) < width - 1) break;
    const std::string scalar = ScalarName(static_cast<MTLDataType>(NSUInteger(type) - width + 1));
    if (!scalar.empty()) return width == 1 ? scalar : scalar + std::to_string(width);
  }
  // Matrices: 2x2, 2x3, ... 4x4, columns first.
  for (const auto& [first, scalar] :
       {std::pair{MTLDataTypeFloat2x2, "float"}, {MTLDataTypeHalf2x2, "half"}}) {
    if (type < first || type >= first + 9) continue;
    return StrCat(scalar, (type - first) / 3 + 2, 'x', (type - first) % 3 + 2);
  }
  return "";
}

std::string DescribeLayout(id<MTLBufferBinding> binding) {
  const bool says = [binding respondsToSelector:@selector(isReference)];
  const char* reference = !says ? "null" : [(id<Referring>)binding isReference] ? "true" : "false";
  return StrCat('[', reference, ',', [binding bufferAlignment], ',',
                Describe([binding bufferDataType], [binding bufferStructType],
                         [[binding bufferPointerType] elementArrayType]),
                ']');
}

}  // namespace metal_ops
